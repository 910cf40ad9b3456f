"""The last samples of a stream, every window of them contiguous in memory.

Each sample is stored twice, one capacity apart, so that no window ever wraps around:

    capacity 4, after samples a b c d e f:   | e f c d | e f c d |
    the window of the last four:                 [ c d   e f ]
"""

import numpy as np
from numpy.typing import NDArray


class SampleRing:
    """A mirrored ring buffer of float32 samples.

    Samples before the first are zeros. A window is a view: it stays valid until ``slack`` more
    samples have been written.
    """

    def __init__(self, window: int, slack: int = 0, first: int = 0) -> None:
        """Args:
        window: samples of a window.
        slack: samples that may be written before the oldest window in use is overwritten.
        first: index of the first sample that will be written.
        """
        self._window = window
        self._capacity = window + slack
        self._memory = np.zeros(2 * self._capacity, np.float32)
        self.written = first  # so far: the absolute index of the next sample

    def write(self, samples: NDArray[np.float32]) -> None:
        """Append samples, shape [n]; n is at most ``window + slack``."""
        count = len(samples)
        start = self.written % self._capacity
        first = min(count, self._capacity - start)  # up to the end of the first copy
        for base in (0, self._capacity):
            self._memory[base + start : base + start + first] = samples[:first]
            self._memory[base : base + count - first] = samples[first:]
        self.written += count

    def window(self) -> NDArray[np.float32]:
        """The latest samples without a copy; not to be written to."""
        offset = (self.written - self._window) % self._capacity
        return self._memory[offset : offset + self._window]
