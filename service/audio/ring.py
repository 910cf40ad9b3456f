"""The last samples of a stream, every window of them contiguous in memory.

Each sample is stored twice, one capacity apart, so that no window ever wraps around:

    capacity 4, after samples a b c d e f:   | e f c d | e f c d |
    the latest four:                             [ c d   e f ]
"""

import numpy as np
from numpy.typing import NDArray


class SampleRing:
    """A mirrored ring buffer of float32 samples. Samples before the first are zeros."""

    def __init__(self, capacity: int, first: int = 0) -> None:
        """Args:
        capacity: samples kept.
        first: index of the first sample that will be written.
        """
        self._capacity = capacity
        self._memory = np.zeros(2 * capacity, np.float32)
        self.written = first  # so far: the absolute index of the next sample

    def write(self, samples: NDArray[np.float32]) -> None:
        """Append samples, shape [n]; n is at most the capacity."""
        count = len(samples)
        start = self.written % self._capacity
        first = min(count, self._capacity - start)  # up to the end of the first copy
        for base in (0, self._capacity):
            self._memory[base + start : base + start + first] = samples[:first]
            self._memory[base : base + count - first] = samples[first:]
        self.written += count

    def latest(self, count: int) -> NDArray[np.float32]:
        """The latest samples, at most the capacity: a view, valid until the next ``write``."""
        offset = (self.written - count) % self._capacity
        return self._memory[offset : offset + count]
