"""Messages received but not yet processed by the session, bounded in duration and number."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from service.protocol.client_messages import Flush
from service.protocol.faults import ProtocolError
from service.protocol.options import AudioFormat
from service.protocol.server_messages import DoneReason


@dataclass(frozen=True, slots=True)
class End:
    """The end of the audio: its reason, and the error if there was one."""

    reason: DoneReason
    error: ProtocolError | None = None


class Inbox:
    """Audio and control messages in order of arrival.

    One task puts and one gets. `put` waits while more than `max_buffered_ms` of audio is queued or
    being transcribed, so that a socket is read no faster than its audio is used; one message is
    always accepted, regardless of length. Tiny messages hold little audio each, so it also waits
    while `max_messages` are queued.
    """

    def __init__(self, audio: AudioFormat, max_buffered_ms: float, max_messages: int) -> None:
        self._audio = audio
        self._max_messages = max_messages
        self._max_buffered_ms = max_buffered_ms
        self.arrivals = ArrivalClock()
        self._messages: deque[bytes | Flush | End] = deque()
        self.queued_ms = 0.0
        self._working_ms = 0.0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    async def put(self, message: bytes | Flush | End) -> None:
        self.arrivals.arrived(self._duration_ms(message) / 1000)
        while self._full:
            self._emptied.clear()
            await self._emptied.wait()
        self._messages.append(message)
        self.queued_ms += self._duration_ms(message)
        self._filled.set()

    async def get(self) -> bytes | Flush | End:
        """The oldest message; calling this marks the previous one as processed."""
        self._working_ms = 0.0
        self._emptied.set()
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        message = self._messages.popleft()
        self._working_ms = self._duration_ms(message)
        # Exactly 0 when empty: float sums would drift over hours.
        self.queued_ms = self.queued_ms - self._working_ms if self._messages else 0.0
        self._emptied.set()
        return message

    @property
    def _full(self) -> bool:
        too_long = self.queued_ms + self._working_ms > self._max_buffered_ms
        return too_long or len(self._messages) >= self._max_messages

    def _duration_ms(self, message: bytes | Flush | End) -> float:
        return self._audio.duration_ms(len(message)) if isinstance(message, bytes) else 0.0


class ArrivalClock:
    """When each sample of a stream would have arrived at the pace of a microphone.

    A sample arrives when it is received, but never before the earlier ones have played, so a
    stream sent faster than real time does not count as late merely because it has to wait.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._end_s = clock()

    def arrived(self, duration_s: float) -> None:
        """Record that the next ``duration_s`` seconds of audio have been received."""
        self._end_s = max(self._end_s, self._clock()) + duration_s

    def age_s(self, before_end_s: float = 0.0) -> float:
        """Seconds since the sample ``before_end_s`` before the end arrived; 0 if not yet here."""
        return max(0.0, self._clock() - self._end_s + before_end_s)
