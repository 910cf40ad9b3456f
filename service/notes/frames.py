"""Operations on frames of probabilities: a buffer of the latest frames, and peaks of onsets."""

import math

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES

OVERTONES = (12, 19, 24, 28, 31, 34, 36)  # semitones above a note


class LatestFrames:
    """Buffer of a block and the ``kept`` frames before it. The frames of each row are contiguous in
    memory. Silence precedes the stream."""

    def __init__(self, rows: int, kept: int) -> None:
        self._kept = self._end = kept
        self._memory = np.zeros((rows, kept, PITCHES), np.float32)

    def append(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Append a block, [rows, n, PITCHES]. Return [rows, kept + n, PITCHES], a writable view
        that is valid until the next call."""
        new = block.shape[1]
        if self._end + new > self._memory.shape[1]:
            latest = self._memory[:, self._end - self._kept : self._end]
            self._end = self._kept
            size = self._kept + max(self._kept, new)
            self._memory = np.empty((len(latest), size, PITCHES), np.float32)
            self._memory[:, : self._kept] = latest
        self._memory[:, self._end : self._end + new] = block
        self._end += new
        return self._memory[:, self._end - self._kept - new : self._end]


def as_probabilities(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Clip values to the range 0 to 1, and replace NaN by 0, faster than ``nan_to_num``."""
    return np.fmin(np.fmax(values, 0), 1, dtype=np.float32)


def add_log_odds(probability: float, log_odds: float) -> float:
    """Return the probability whose log-odds are higher by ``log_odds``. 0 and 1 stay unchanged."""
    if not 0 < probability < 1:
        return probability
    return 1 / (1 + (1 / probability - 1) * math.exp(-log_odds))


def peaks(onset: NDArray[np.float32], radius: int, threshold: float) -> NDArray[np.bool_]:
    """Return True at the peaks of the onset probabilities, [frames, PITCHES]. A peak reaches
    ``threshold`` (above 0), exceeds the ``radius`` frames before it, and is not below the
    ``radius`` frames after it. Frames outside of the array count as 0."""
    is_peak = onset >= threshold
    if not is_peak.any():
        return is_peak
    for shift in range(1, radius + 1):
        is_peak[shift:] &= onset[shift:] > onset[:-shift]
        is_peak[:-shift] &= onset[:-shift] >= onset[shift:]
    return is_peak


def onset_shift(around: NDArray[np.float32]) -> float:
    """Return the time from a peak to its onset in frames, -0.5 to 0.5. The onset head is trained to
    output a triangle around an onset, and its two flanks determine the true top. ``around``: onset
    probabilities of the frames before, at and after the peak. If the frame after the peak is
    missing, the result is 0."""
    if len(around) < 3:
        return 0.0
    before, peak, after = around.tolist()
    lowest = min(before, after)
    shift = 0.5 * (after - before) / (peak - lowest) if peak > lowest else 0.0
    return min(0.5, max(-0.5, shift))
