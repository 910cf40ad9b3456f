"""The pace of a live stream: when its audio would have arrived from a microphone, and how fast it
may arrive."""

from collections.abc import Callable
from time import monotonic

from service.access.rate import Bucket


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


class Pacer:
    """How long to stop reading a stream so that it keeps to its maximum pace.

    No message is sent: the client's socket fills up, and it waits. A microphone is never affected;
    a recording sent through the websocket cannot crowd out other streams.
    """

    def __init__(
        self, max_pace: float, burst_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        """Args:
        max_pace: seconds of audio per second, on average.
        burst_s: seconds of audio that may arrive at once.
        """
        self._clock = clock
        self._bucket = Bucket(max_pace, burst_s)

    def pause_s(self, duration_s: float) -> float:
        """Counts audio that has been read; returns the seconds to wait before reading more."""
        now_s = self._clock()
        self._bucket.take(duration_s, now_s)
        return self._bucket.wait_s(0, now_s)
