"""Runs uvicorn with limits for hostile clients, and drains the service at SIGTERM.

uvicorn closes every websocket before it notifies the application, so sessions could not send their
last notes. This server first sets `draining`: the service rejects new work, and sessions send their
last notes and `done`. uvicorn shuts down when all sessions and uploads have ended, or shortly
before `drain_timeout_s` has passed. A second signal skips the wait.
"""

import asyncio
import logging
import signal
import socket
import threading
from contextvars import Context
from time import monotonic
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from service.live.session import MAX_MESSAGE_BYTES
from service.settings import Settings
from service.state import ServiceState

logger = logging.getLogger(__name__)

UNREAD_MS = 30_000  # time after which the system drops a connection whose client does not read
RECEIVE_BUFFER_BYTES = 128 * 1024  # small, so that a ping behind the audio is answered within 20 s

# Maximum size of a request's URL and headers, and of the trailers after its body. An incomplete
# head is checked after each read, so it may exceed the limit by one read (256 KiB).
MAX_HEAD_BYTES = 32 * 1024
HEAD_TOO_LARGE = f"request head too large: at most {MAX_HEAD_BYTES} bytes are accepted"
MAX_PIPELINED = 16  # maximum number of requests that wait for the response to an earlier request
# Size of a websocket's waiting messages above which no more are read. Reading ahead lets the server
# answer a ping that follows the waiting messages.
MAX_READ_AHEAD_BYTES = 1024 * 1024
OVERHEAD_BYTES = 256  # added to the size of each waiting message
PARSED_BYTES = 4096  # bytes of a websocket that are parsed before other connections are served
# Maximum rate of a client's websocket frames. The frames of FRAMES_BURST_S may arrive at once.
MAX_FRAMES_PER_S, FRAMES_BURST_S = 2000, 1.0


class HttpConnection(HttpToolsProtocol):
    """HTTP connection that limits the size of a request head to MAX_HEAD_BYTES, and the time until
    it is complete to the idle timeout. The timeout also applies to a request body that continues
    after the response."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._running: RequestResponseCycle | None = None
        self._head_bytes = 0  # bytes since the last complete head, or the last part of a body
        self._restart_timeout()
        self._schedule_timeout()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)  # cancels the timeout
        if self not in self.connections or self.transport.is_closing():  # closed, or a websocket
            return
        if self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response(HEAD_TOO_LARGE)
        elif self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self._schedule_timeout()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._restart_timeout()

    def on_headers_complete(self) -> None:
        # An exception becomes a response with status 400.
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests wait for a response")
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > MAX_HEAD_BYTES:
            raise ValueError(HEAD_TOO_LARGE)
        super().on_headers_complete()
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        self._restart_timeout()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        super()._start_asgi_task(cycle, app)
        self._running = cycle

    def send_400_response(self, msg: str) -> None:
        """Respond to a malformed request and close the connection. Drop the response to an earlier
        request, because the base class would log an error for it."""
        super().send_400_response(msg)
        if self._running is not None:
            self._running.disconnected = True

    def _restart_timeout(self) -> None:
        self._timeout_at_s = self.loop.time() + self.timeout_keep_alive

    def _schedule_timeout(self) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_at(
            self._timeout_at_s, self.timeout_keep_alive_handler
        )


class MessageQueue(asyncio.Queue[ASGIReceiveEvent]):
    """Queue of a websocket's messages. ``size``: bytes of audio and characters of text, plus
    OVERHEAD_BYTES for each message."""

    size = 0

    def _put(self, item: ASGIReceiveEvent) -> None:
        super()._put(item)
        self.size += _size(item)

    def _get(self) -> ASGIReceiveEvent:
        item = super()._get()
        self.size -= _size(item)
        return item


def _size(message: Any) -> int:
    return OVERHEAD_BYTES + len(message.get("bytes") or message.get("text") or "")


class SocketConnection(WebSocketsSansIOProtocol):
    """Websocket that parses PARSED_BYTES at a time, and after a burst at most MAX_FRAMES_PER_S. A
    client that sends endless small frames, such as pings, could otherwise block the event loop. The
    class reads until MAX_READ_AHEAD_BYTES wait for the application, or until the client does not
    read. It prevents uvicorn from logging rejected handshakes as errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = self._messages = MessageQueue()
        self._unparsed = b""
        self._frames_done_s = 0.0  # time at which MAX_FRAMES_PER_S allows another frame
        self._parsing: asyncio.TimerHandle | None = None

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self.handshake_complete |= self.close_sent

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._pause_or_resume()
        return message

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if self._parsing is None:
            self._parse()

    def send_receive_event_to_app(self) -> None:
        """Close the connection if a text is not UTF-8. The base class would log a traceback."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.conn.fail(1007, "a text message is not UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()
        self._pause_or_resume()

    def handle_events(self) -> None:
        self._frames_done_s = max(self._frames_done_s, self.loop.time())
        self._frames_done_s += len(self.conn.events) / MAX_FRAMES_PER_S
        super().handle_events()

    def _parse(self) -> None:
        self._parsing = None
        data, self._unparsed = self._unparsed[:PARSED_BYTES], self._unparsed[PARSED_BYTES:]
        if data:
            super().data_received(data)
        self._schedule_parsing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._schedule_parsing()

    def _schedule_parsing(self) -> None:
        if self.transport.is_closing():
            return
        wait_s = self._frames_done_s - self.loop.time() - FRAMES_BURST_S
        if self._parsing is None and self._accepts_frames and (self._unparsed or wait_s > 0):
            self._parsing = self.loop.call_later(max(0.0, wait_s), self._parse)
        self._pause_or_resume()

    @property
    def _accepts_frames(self) -> bool:
        """False if the client does not read: the pongs to its pings would fill the memory. After
        the server's close frame always True, so that the client's close frame is read."""
        return self.close_sent or self.writable.is_set()

    def _pause_or_resume(self) -> None:
        """Pause or resume reading. The base class reads only while no message waits. After the
        server's close frame, read on until the client's, because no message is queued any more."""
        is_full = self._messages.size > MAX_READ_AHEAD_BYTES and not self.close_sent
        self.read_paused = is_full or not self._accepts_frames
        if self.transport.is_closing():
            return
        if self.read_paused or self._parsing is not None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Close the connection. If the server has sent its close frame, wait for the client's: the
        base class would close the transport, and the system would drop unsent messages if the
        client sends audio."""
        if not self.close_sent:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._parsing is not None:
            self._parsing.cancel()
        super().connection_lost(exc)


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=HttpConnection,
        ws=SocketConnection,
        # Above MAX_MESSAGE_BYTES the application sends an error. Above this limit the library
        # closes the socket with 1009.
        ws_max_size=4 * MAX_MESSAGE_BYTES,
        # PCM compresses poorly, so deflate would only cost time and memory.
        ws_per_message_deflate=False,
        # Pings prevent proxies from closing an idle socket. They have no timeout, because a pong
        # may follow audio that is not read yet. idle_timeout_s and SEND_TIMEOUT_S apply instead.
        ws_ping_interval=20.0,
        ws_ping_timeout=None,
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # any number works
        forwarded_allow_ips=list(settings.trusted_proxies),
        lifespan="on",
        server_header=False,
        access_log=False,
        log_config=None,
    )


class DrainingServer(uvicorn.Server):
    """Server that runs one application until a signal, then drains it."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self._state = state
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen. Set the handler of SIGHUP, and options that accepted sockets inherit."""
        await super().startup(sockets)
        main_thread = threading.current_thread() is threading.main_thread()
        if main_thread and hasattr(signal, "SIGHUP"):  # not on Windows
            reload_keys = self._state.keys.reload
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_keys)
        for server in self.servers:
            for listener in server.sockets:
                if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
                    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)

    async def on_tick(self, counter: int) -> bool:
        """Return True if the server has to exit, for example because the model failed to load."""
        return await super().on_tick(counter) or self._state.load_error is not None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, and exit at the second. Until the server has started, exit at
        the first. The exit status is 0, because uvicorn does not raise the first signal again."""
        if not self.started or self._state.draining.is_set():
            # Not force_exit: uvicorn would cancel the application instead of shutting it down.
            self.should_exit = True
            return
        # Use an empty context. The signal may interrupt the task of a session, whose ID would
        # otherwise appear in the log lines about draining.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._begin_drain, context=Context())

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._state.draining.set()
            self._drain = asyncio.create_task(self._wait_for_sessions())

    async def _wait_for_sessions(self) -> None:
        started_s = monotonic()
        sessions, uploads = self._state.sessions, self._state.uploads
        logger.info("draining: sessions=%d uploads=%d", sessions.count, uploads.count)
        timeout_s = self._state.settings.drain_timeout_s
        rest_s = min(2.0, timeout_s / 4)  # half to close sockets, half to stop the workers
        # The option has the type int, but any number works.
        self.config.timeout_graceful_shutdown = rest_s / 2  # type: ignore[assignment]
        try:
            async with asyncio.timeout(timeout_s - rest_s):
                while sessions.count or uploads.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            logger.warning(
                "timed out waiting for sessions=%d uploads=%d", sessions.count, uploads.count
            )
        logger.info("draining ended after %.2f s", monotonic() - started_s)
        self.should_exit = True
