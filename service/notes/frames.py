"""Frames of probabilities: the latest of a stream, and the peaks of the onset head in them."""

import math

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES

OVERTONES = (12, 19, 24, 28, 31, 34, 36)  # semitones above a note
_BLOCKS = 8  # between copies of what is kept


class LatestFrames:
    """The ``kept`` frames before a block, and the block, contiguous in memory. Silence precedes the
    stream."""

    def __init__(self, rows: int, kept: int) -> None:
        self._kept = self._end = kept
        self._memory = np.zeros((rows, kept, PITCHES), np.float32)

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


def as_probabilities(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """From 0 to 1, and 0 for NaN; several times as fast as ``nan_to_num``."""
    return np.fmin(np.fmax(values, 0), 1, dtype=np.float32)


def add_log_odds(probability: float, odds: float) -> float:
    """The probability whose log-odds are greater by so much."""
    if not 0 < probability < 1:
        return probability
    return 1 / (1 + (1 / probability - 1) * math.exp(-odds))


def peaks(onset: NDArray[np.float32], radius: int, least: float) -> NDArray[np.bool_]:
    """Where [frames, PITCHES] is at least ``least``, which is above 0, above the ``radius`` frames
    before and not below those after: the first of equals is the peak. Outside there is silence."""
    found = onset >= least
    if not found.any():
        return found
    for shift in range(1, radius + 1):
        found[shift:] &= onset[shift:] > onset[:-shift]
        found[:-shift] &= onset[:-shift] >= onset[shift:]
    return found


def frame_confirms_onset(
    frame: NDArray[np.float32], radius: int, threshold: float
) -> NDArray[np.bool_]:
    """Where the greatest of the frame probabilities, [frames, PITCHES], from there until ``radius``
    frames later reaches the threshold."""
    enough = frame >= threshold
    found = enough.copy()
    for shift in range(1, radius + 1):
        found[:-shift] |= enough[shift:]
    return found


def onset_shift(about: NDArray[np.float32]) -> float:
    """Frames from a peak to the onset, -0.5 to 0.5: about has the onset probabilities of the frame
    before, of the peak and, where it is known, of the frame after. The onset head is trained
    towards a triangle, so the true top follows from the three exactly as its two flanks meet."""
    if len(about) < 3:
        return 0.0
    before, peak, after = about.tolist()
    lowest = min(before, after)
    shift = 0.5 * (after - before) / (peak - lowest) if peak > lowest else 0.0
    return min(0.5, max(-0.5, shift))
