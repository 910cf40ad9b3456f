"""The latest samples of a stream."""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]


class SampleBuffer:
    """Samples at the model's rate: those of the latest windows, which overlap, and what follows.

        silence before the stream   in windows already      not yet due
        .............|--------------------------------------|----------------|
                   begin      |<--- last window: 8192 -->|                  end
                                                        due

    Samples are counted from the beginning of the performance.

    Attributes:
        due: sample after the last window.
    """

    def __init__(self, first_sample: int, kept: int) -> None:
        """Args:
        first_sample: the first sample to come; silence precedes it.
        kept: number of samples before ``due`` that are kept.
        """
        self.due, self._kept = first_sample, kept
        self._begin = first_sample - kept
        self._samples = np.zeros(kept, np.float32)

    @property
    def end(self) -> int:
        """Sample after the last one."""
        return self._begin + len(self._samples)

    def append(self, samples: Samples) -> None:
        """Add the next samples, shape [n]. Views of earlier samples stay valid."""
        first = self.due - self._kept
        kept = self._samples[first - self._begin :]
        self._samples, self._begin = np.concatenate([kept, samples]), first

    def advance(self, due: int) -> Samples:
        """Set ``due``, and return the samples up to there that were not in windows before."""
        new = self.between(self.due, due)
        self.due = due
        return new

    def between(self, first: int, stop: int) -> Samples:
        """Return a view of these samples."""
        return self._samples[first - self._begin : stop - self._begin]
