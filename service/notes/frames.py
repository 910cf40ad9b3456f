"""The latest frames of a stream, contiguous in memory."""

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES

_BLOCKS = 8  # between copies of what is kept


class LatestFrames:
    """The ``kept`` frames before a block, and the block. What precedes the stream has one value."""

    def __init__(self, rows: int, kept: int, before: float = 0.0) -> None:
        self._kept = self._end = kept
        self._memory = np.full((rows, kept, PITCHES), before, np.float32)

    def append(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """block: [rows, n, PITCHES]. Returns [rows, kept + n, PITCHES], a view that may be written
        to, valid until the next call."""
        new = block.shape[1]
        if self._end + new > self._memory.shape[1]:
            latest = self._memory[:, self._end - self._kept : self._end]
            self._end = self._kept
            size = self._kept + max(self._kept, _BLOCKS * new)
            self._memory = np.empty((len(latest), size, PITCHES), np.float32)
            self._memory[:, : self._kept] = latest
        self._memory[:, self._end : self._end + new] = block
        self._end += new
        return self._memory[:, self._end - self._kept - new : self._end]
