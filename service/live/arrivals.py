"""When each sample of a stream would have arrived at the pace of a microphone."""

from collections.abc import Callable
from time import monotonic


class ArrivalClock:
    """A sample arrives when it is received, but never before the earlier ones have played, so a
    stream sent faster than real time does not count as late merely because it has to wait.
    """

    def __init__(self, begin_s: float = 0.0, clock: Callable[[], float] = monotonic) -> None:
        """begin_s: seconds of the performance before the first sample."""
        self._clock = clock
        self._end_s = clock()
        self._audio_s = begin_s

    def arrived(self, duration_s: float) -> None:
        """The next ``duration_s`` seconds of audio have been received."""
        self._end_s = max(self._end_s, self._clock()) + duration_s
        self._audio_s += duration_s

    def age_s(self, audio_s: float) -> float:
        """Seconds since the sample at ``audio_s`` seconds of the audio arrived; 0 if not yet."""
        return max(0.0, self._clock() - self._end_s + self._audio_s - audio_s)
