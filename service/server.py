"""A uvicorn server that ends open sessions before it closes their sockets.

By itself uvicorn closes every websocket before it notifies the application, so sessions could not
send their last notes. Here SIGTERM first sets `draining`: new work is refused, and sessions send
their last notes and `done`. When they have finished, or most of `drain_timeout_s` has passed,
uvicorn shuts down as usual. A second signal skips the wait.
"""

import asyncio
import logging
import signal
import socket
import threading
from contextvars import Context
from time import monotonic
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from service.live.receiving import MAX_MESSAGE_BYTES
from service.settings import Settings
from service.state import ServiceState

logger = logging.getLogger(__name__)

UNREAD_MS = 30_000  # how long the system keeps what a client does not read
AHEAD_BYTES = 128 * 1024  # that wait in the system: a ping behind them is answered within 20 s


class HttpConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """One that asks for nothing, or half of a request, ends after a while."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._end_later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answered = self.cycle is None or self.cycle.response_complete
        if self in self.connections and answered:  # else it is a websocket's now
            self._end_later()

    def _end_later(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )


class SocketConnection(WebSocketsSansIOProtocol):
    """Without uvicorn's error in the log after each handshake that was answered with a status."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self.handshake_complete |= self.close_sent


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=HttpConnection,
        ws=SocketConnection,
        # The application answers a message above MAX_MESSAGE_BYTES with an error; the websocket
        # library closes with 1009 on one too large to hold in memory.
        ws_max_size=4 * MAX_MESSAGE_BYTES,
        ws_max_queue=4,
        # PCM does not compress; deflate would only cost time and memory.
        ws_per_message_deflate=False,
        # Pings keep proxies from closing a quiet socket. The pong queues behind unread audio, so it
        # has no timeout; idle_timeout_s and send_timeout_s apply instead.
        ws_ping_interval=20.0,
        ws_ping_timeout=None,
        timeout_keep_alive=round(settings.idle_timeout_s),
        forwarded_allow_ips=list(settings.trusted_proxies),
        lifespan="on",
        server_header=False,
        access_log=False,
        log_config=None,
    )


class DrainingServer(uvicorn.Server):
    """Runs one application until a signal, then drains it."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self._state = state
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepted sockets inherit that the system drops a client which reads nothing. SIGHUP
        reloads the keys."""
        await super().startup(sockets)
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and hasattr(signal, "SIGHUP"):  # not on Windows
            reload_keys = self._state.keys.reload
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_keys)
        for listening in (one for server in self.servers for one in server.sockets):
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, AHEAD_BYTES)

    async def on_tick(self, counter: int) -> bool:
        """Whether to end: also if the model cannot be loaded."""
        return await super().on_tick(counter) or self._state.load_error is not None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler. It does not re-raise the signal: a drained server exits with 0."""
        if not self.started or self._state.draining.is_set():
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        # An empty context: the signal may interrupt a task, whose session id is not the drain's.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._begin_drain, context=Context())

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._state.draining.set()
            self._drain = asyncio.create_task(self._wait_for_sessions())

    async def _wait_for_sessions(self) -> None:
        began_s = monotonic()
        sessions, uploads = self._state.sessions, self._state.uploads
        logger.info("draining: %d sessions are open", sessions.count)
        timeout_s = self._state.settings.drain_timeout_s
        rest_s = min(2.0, timeout_s / 4)  # half for closing sockets, half for ending the worker
        # typed as int, but any number works
        self.config.timeout_graceful_shutdown = rest_s / 2  # type: ignore[assignment]
        try:
            async with asyncio.timeout(timeout_s - rest_s):
                while sessions.count or uploads.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            logger.warning("gave up on %d sessions and %d uploads", sessions.count, uploads.count)
        logger.info("drained in %.2f s", monotonic() - began_s)
        self.should_exit = True
