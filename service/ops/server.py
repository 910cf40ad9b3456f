"""A uvicorn server that ends open sessions before it closes their sockets.

At SIGTERM uvicorn itself first sends a close frame to every websocket, so that nothing more can
be sent, and only then notifies the application. Here the signal first sets `draining`: new work is
refused, and sessions send their last notes and `done`. Once they have finished, or most of
`drain_timeout_s` is over, uvicorn shuts down as usual in the remaining time. A
second signal skips the wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from service.access.places import Places
from service.ops.metrics import Metrics
from service.settings import Settings

logger = logging.getLogger(__name__)

# A message above max_message_bytes is answered in words by the application; one so far above
# that it should not even be held in memory is cut off by the websocket library with 1009.
HARD_SIZE_FACTOR = 4


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ws=partial(AbortingProtocol, patience_s=settings.send_timeout_s),  # type: ignore[arg-type]
        ws_max_size=HARD_SIZE_FACTOR * settings.max_message_bytes,
        ws_max_queue=4,
        # PCM does not compress; deflate would cost time and memory for every connection.
        ws_per_message_deflate=False,
        # A ping keeps proxies from closing a quiet socket. Its answer lies behind the audio that is
        # not read yet, so that it must have no timeout: idle_timeout_s and send_timeout_s have one.
        ws_ping_interval=20.0,
        ws_ping_timeout=None,
        forwarded_allow_ips=list(settings.trusted_proxies),
        lifespan="on",
        server_header=False,
        access_log=False,
        log_config=None,
    )


class AbortingProtocol(WebSocketsSansIOProtocol):
    """A websocket that is aborted if its client does not even read its end.

    uvicorn closes the connection once all is written, which a client that reads nothing puts off
    for ever. One that reads slowly gets the whole of its last message.
    """

    def __init__(self, *args: Any, patience_s: float, **kwargs: Any) -> None:
        """patience_s: time in which the client has to take something, after its session's end."""
        super().__init__(*args, **kwargs)
        self._patience_s = patience_s
        self._abort: asyncio.TimerHandle | None = None

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            self._wait()

    def _wait(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        self._abort = self.loop.call_later(self._patience_s, self._look, unsent_bytes)

    def _look(self, unsent_bytes: int) -> None:
        """Aborts if the client has read nothing since ``unsent_bytes`` were unsent."""
        if self.transport.get_write_buffer_size() < unsent_bytes:
            self._wait()
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._abort is not None:
            self._abort.cancel()


def drain_budget(drain_timeout_s: float) -> tuple[float, float, float]:
    """Seconds of the drain for sessions and uploads, for closing sockets, for the worker's end."""
    rest_s = min(2.0, drain_timeout_s / 4)
    return drain_timeout_s - rest_s, rest_s / 2, rest_s / 2


class Drained(Protocol):
    """What the server needs of the application that it drains.

    Attributes:
        close_timeout_s: set to what the drain leaves for the engine's workers.
    """

    settings: Settings
    metrics: Metrics
    draining: asyncio.Event
    sessions: Places
    uploads: Places
    close_timeout_s: float


class DrainingServer(uvicorn.Server):
    """Runs one application until a signal, then drains it."""

    def __init__(self, config: uvicorn.Config, state: Drained) -> None:
        super().__init__(config)
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self.failed = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal, between any two instructions of the main thread.

        The signal is not kept to be raised again afterwards: a drained server exits with 0.
        """
        if self._loop is None or self._state.draining.is_set():
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._loop.call_soon_threadsafe(self._begin_drain)

    def fail(self) -> None:
        """Ends the server as failed; for the application, when its model cannot be loaded."""
        self.failed = True
        self.should_exit = True

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._state.draining.set()
            self._drain = asyncio.create_task(self._wait_for_sessions())

    async def _wait_for_sessions(self) -> None:
        began_s = monotonic()
        logger.info("draining: %d sessions are open", self._state.sessions.taken)
        sessions_s, sockets_s, worker_s = drain_budget(self._state.settings.drain_timeout_s)
        # uvicorn asks for whole seconds, and takes any.
        self.config.timeout_graceful_shutdown = sockets_s  # type: ignore[assignment]
        self._state.close_timeout_s = worker_s
        try:
            async with asyncio.timeout(sessions_s):
                await self._state.sessions.wait_until_empty()
                await self._state.uploads.wait_until_empty()
        except TimeoutError:
            open_sessions, uploads = self._state.sessions.taken, self._state.uploads.taken
            logger.warning("gave up on %d sessions and %d uploads", open_sessions, uploads)
        drained_s = monotonic() - began_s
        self._state.metrics.drain_s.set(drained_s)
        logger.info("drained in %.2f s", drained_s)
        self.should_exit = True
