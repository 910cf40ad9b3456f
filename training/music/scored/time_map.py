"""Maps score time to recording time."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.music.label_tables import LabelError

HEAD_LINES = 2  # of a table: a comment, then the column names


@dataclass(frozen=True)
class TimeMap:
    """Increasing pairs of times in seconds, [n] each; linear in between, extrapolated at the mean
    pace."""

    score_s: NDArray[np.float64]
    audio_s: NDArray[np.float64]

    def __call__(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Times of the recording for times of the score."""
        span = float(self.score_s[-1] - self.score_s[0])
        pace = float(self.audio_s[-1] - self.audio_s[0]) / span if span else 1.0
        before = np.minimum(0, times_s - self.score_s[0])
        after = np.maximum(0, times_s - self.score_s[-1])
        inside = np.interp(times_s, self.score_s, self.audio_s)
        return np.asarray(inside + (before + after) * pace)


def read_time_map(path: Path) -> TimeMap:
    """From a TSV of score_s, audio_s and any further columns, below two header lines.

    Raises LabelError for other tables and for times that do not increase.
    """
    try:
        rows = path.read_text(encoding="utf-8").splitlines()[HEAD_LINES:]
        cells = [row.split("\t")[:2] for row in rows if row]
        pairs = np.array(cells, np.float64).reshape(-1, 2)
    except (OSError, ValueError) as error:
        raise LabelError(f"cannot read {path}: {error}") from None
    if len(pairs) < 2:
        raise LabelError(f"{path}: expected at least two rows of score_s and audio_s")
    if (np.diff(pairs, axis=0) < 0).any() or not np.isfinite(pairs).all():
        raise LabelError(f"{path}: the times do not increase")
    _, first = np.unique(pairs[:, 0], return_index=True)
    return TimeMap(*pairs[first].T)
