"""Connections that neither hold up the event loop nor stay open for nothing.

uvicorn parses all that has arrived before anything else runs, waits forever for a request, and
answers pings of a client that reads nothing.
"""

import asyncio
import contextlib
import logging
import math
from typing import Any

import h11
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from service.access.rate import Bucket
from service.settings import Settings

logger = logging.getLogger(__name__)

PIECE_BYTES = 2 * 1024
"""What is parsed at a time: at worst 7 ms of tiny HTTP chunks, 1 ms of tiny frames."""
TURN_S = 0.005
"""Time for which pieces are parsed before the event loop has its turn."""


class HeldTransport:
    """A transport that reads only while neither its protocol nor :class:`InTurns` pauses it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._paused = self._held = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._paused = True
        self._apply()

    def resume_reading(self) -> None:
        self._paused = False
        self._apply()

    def hold(self, held: bool) -> None:
        self._held = held
        self._apply()

    def _apply(self) -> None:
        if self._paused or self._held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class InTurns(asyncio.Protocol):
    """Has a protocol of uvicorn parse for TURN_S at most before others have their turn.

    Nothing more is read until all that was read is parsed.
    """

    transport: Any
    connections: Any
    loop: asyncio.AbstractEventLoop

    def __init__(self, *args: Any, settings: Settings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings
        self._unparsed = b""
        self._turn: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(HeldTransport(transport))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if self._turn is None:
            self._parse()

    def _parse(self) -> None:
        until_s = self.loop.time() + TURN_S
        while True:
            if self not in self.connections or self.transport.is_closing():
                return
            piece, self._unparsed = self._unparsed[:PIECE_BYTES], self._unparsed[PIECE_BYTES:]
            super().data_received(piece)
            wait_s = self._wait_s()
            if wait_s or not self._unparsed or self.loop.time() >= until_s:
                break
        if self._unparsed or wait_s:
            self.transport.hold(True)
            self._turn = self.loop.call_later(wait_s, self._parse)
        elif self._turn is not None:
            self._turn = None
            self.transport.hold(False)

    def _wait_s(self) -> float:
        """Seconds until the next turn."""
        return 0.0


class HTTPConnection(InTurns, H11Protocol):
    """HTTP, closed if a request does not begin in time; h11 limits its head to 16 KiB."""

    _expected: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        limit = self._settings.connection_limit
        if len(self.connections) > limit:
            _log_refused(self.loop.time(), limit)
            self.transport.abort()
        self._expect_request()

    def on_response_complete(self) -> None:
        self._expect_request()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        with contextlib.suppress(h11.LocalProtocolError):  # the request already has its answer
            super().send_400_response(msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._expected is not None:
            self._expected.cancel()

    def _expect_request(self) -> None:
        # A timer keeps its arguments alive, so that there is one at a time.
        if self._expected is not None:
            self._expected.cancel()
        self._expected = self.loop.call_later(self._settings.idle_timeout_s, self._look, self.cycle)

    def _look(self, last: object) -> None:
        """Closes the connection if no request has come since the last one."""
        if self.cycle is last and self in self.connections:
            self.transport.close()


_refusals_logged_s = -math.inf


def _log_refused(now_s: float, limit: int) -> None:
    """A line a minute: the log is no place for a flood."""
    global _refusals_logged_s
    if now_s - _refusals_logged_s >= 60:
        _refusals_logged_s = now_s
        logger.warning("connections are refused: RSE_MAX_CONNECTIONS=%d are open", limit)


class LiveConnection(InTurns, WebSocketsSansIOProtocol):
    """A websocket whose frames are limited in number, and whose client must read.

    Frames count, rather than messages: a message may have any number of them, a ping is none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rate = self._settings.max_messages_per_s
        self._bucket = Bucket(rate, burst=rate)
        self._frames = 0
        self._pong = b""
        self._ended = False
        self._watch: asyncio.TimerHandle | None = None

    def handle_events(self) -> None:
        self._frames += len(self.conn.events)
        super().handle_events()

    def _wait_s(self) -> float:
        wait_s = self._bucket.take(self._frames, self.loop.time())
        self._frames = 0
        # A client that goes on like this after the close is not read any more.
        return self.close_timeout if wait_s and self.close_sent else wait_s

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        # Else uvicorn logs an error after each handshake that was answered with a status.
        self.handshake_complete |= self.close_sent

    def handle_ping(self) -> None:
        """Answers, or if earlier answers are unread, keeps the newest one (RFC 6455, 5.5.3)."""
        if self.writable.is_set():
            super().handle_ping()
        elif output := b"".join(self.conn.data_to_send()):
            self._pong = output
            if self._watch is None:
                self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._ended:
            self._stop_watching()
        self.transport.write(self._pong)
        self._pong = b""

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self._ended = True
        if not self.disconnected:
            self._watch_reader()

    def _watch_reader(self) -> None:
        """Aborts once the client has read nothing for `send_timeout_s`.

        At the end uvicorn waits until everything is written. A slow client still gets all of it.
        """
        self._stop_watching()
        unsent_bytes = self.transport.get_write_buffer_size()
        self._watch = self.loop.call_later(self._settings.send_timeout_s, self._look, unsent_bytes)

    def _look(self, unsent_bytes: int) -> None:
        if self.transport.get_write_buffer_size() >= unsent_bytes:
            self.transport.abort()
        else:
            self._watch_reader()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()
