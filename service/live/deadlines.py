"""Times at which a session ends: its maximum duration, and the time without messages or audio."""

import asyncio
from collections.abc import Awaitable
from operator import itemgetter

from service.protocol.errors import ErrorCode, ProtocolError

MAX_KEEPALIVE_S = 600.0  # maximum time without audio


class Deadlines:
    """Deadlines of a session. A client is idle only while the service reads its messages."""

    def __init__(self, max_session_s: float, idle_timeout_s: float) -> None:
        self._max_session_s, self._idle_timeout_s = max_session_s, idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._message_s = self._audio_s = self._loop.time()  # times of the latest of each
        self._end_s = self._loop.time() + max_session_s
        self._is_paused = False

    @property
    def idle_s(self) -> float:
        """Seconds since the latest message; 0 while the service does not read."""
        return 0.0 if self._is_paused else self._loop.time() - self._message_s

    def on_message(self, is_audio: bool) -> float:
        """Record a message. Return its time."""
        self._message_s = self._loop.time()
        if is_audio:
            self._audio_s = self._message_s
        return self._message_s

    async def pause(self, waiting: Awaitable[None]) -> None:
        """Wait without reading messages. The time does not count as idle."""
        started_s, self._is_paused = self._loop.time(), True
        await waiting
        self._message_s, self._is_paused = self._loop.time(), False
        self._audio_s += self._message_s - started_s

    def next(self) -> tuple[float, ProtocolError]:
        """Return the time at which the session ends unless a message arrives, and the error."""
        message_s, audio_s = self._message_s, self._audio_s
        if self._is_paused:
            message_s = audio_s = self._loop.time()
        idle, idle_s = ErrorCode.IDLE_TIMEOUT, self._idle_timeout_s
        return min(
            (self._end_s, self.too_long("")),
            (message_s + idle_s, ProtocolError(idle, f"no message for {idle_s:g} s")),
            (audio_s + MAX_KEEPALIVE_S, ProtocolError(idle, f"no audio for {MAX_KEEPALIVE_S:g} s")),
            key=itemgetter(0),
        )

    def too_long(self, what: str) -> ProtocolError:
        """Return the error of a session that exceeds its maximum duration."""
        message = f"session limit reached: {self._max_session_s:g} s {what}".strip()
        return ProtocolError(ErrorCode.SESSION_TOO_LONG, f"{message}; open a new session")
