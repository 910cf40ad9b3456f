"""The pace of a live stream: when its audio would have come in from a microphone, and how fast it
may come in at all."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from service.access.rate import Bucket


class ArrivalClock:
    """When each sample of a stream arrived, had it come at the pace of a microphone.

    A sample arrives when it is received, but never before the ones in front of it have played: so
    a stream that is sent faster than real time is not late only because it waits for its turn.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._end_s = clock()

    def arrived(self, duration_s: float) -> None:
        """The next so many seconds of audio have been received."""
        self._end_s = max(self._end_s, self._clock()) + duration_s

    def age_s(self, before_end_s: float = 0.0) -> float:
        """Seconds since the sample arrived that lies so long before the end; 0 if yet to come."""
        return max(0.0, self._clock() - self._end_s + before_end_s)


class Pacer:
    """How long a stream is not read so that it keeps to its greatest pace.

    The client is not told: its socket fills, and it waits. A microphone never notices, a recording
    through the websocket is sent no faster than others can bear.
    """

    def __init__(
        self, max_pace: float, burst_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        """Args:
        max_pace: seconds of audio in a second, on average.
        burst_s: seconds of audio that may come at once.
        """
        self._clock = clock
        self._bucket = Bucket(max_pace, burst_s)

    def pause_s(self, duration_s: float) -> float:
        """Counts audio that has been read; seconds to wait before more is read."""
        now_s = self._clock()
        self._bucket.take(duration_s, now_s)
        return self._bucket.wait_s(0, now_s)
