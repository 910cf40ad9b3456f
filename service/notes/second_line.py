"""Whether one line plays, or several.

A second pitch is heard in a frame if a pitch that is neither near the likeliest nor in its harmonic
series has a frame probability of ``second_threshold``. If that lasts for ``second_frames``, several
lines play, for ``memory_frames`` from then on. A piano counts as several: its notes ring on.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import OVERTONES
from service.notes.line_settings import LineSettings

PIANO = "instrument:piano"
PIANO_SHARE = 0.3
_NEAR = 2  # semitones: a glide, or a vibrato between two pitches


def _related() -> NDArray[np.bool_]:
    """[128, 128]: whether a pitch, and another heard with it, may be one note."""
    apart = np.abs(np.subtract.outer(np.arange(PITCHES), np.arange(PITCHES)))
    return (apart <= _NEAR) | np.isin(apart, OVERTONES)


_UNRELATED = ~_related()


class SecondLine:
    """Hears whether more than one line has sounded lately, or mostly a piano."""

    def __init__(self, settings: LineSettings, heads: tuple[str, ...]) -> None:
        self._settings = settings
        self._frame = heads.index("frame")
        self._piano = heads.index(PIANO) if PIANO in heads else None
        self.history_frames = settings.memory_frames + settings.second_frames
        # Of the latest frames: whether a second pitch is heard, any pitch, one of a piano.
        self._flags = np.zeros((3, self.history_frames), np.bool_)

    def heard(self, probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Of the next n frames, [heads, n, 128], those at which several lines play: [n]."""
        frame, least = probabilities[self._frame], self._settings.second_threshold
        count, memory = len(frame), self._settings.memory_frames
        likeliest = frame.argmax(axis=1)
        second = np.where(_UNRELATED[likeliest], frame, 0).max(axis=1) >= least
        heard = frame[np.arange(count), likeliest] >= least
        piano = np.zeros(count, np.bool_)
        if self._piano is not None:
            piano = heard & (probabilities[self._piano, np.arange(count), likeliest] >= 0.5)
        flags = np.concatenate([self._flags, [second, heard, piano]], axis=1)
        self._flags = flags[:, -self.history_frames :]
        lasting = _sums(flags[0], self._settings.second_frames) == self._settings.second_frames
        seconds, frames, pianos = (_sums(each, memory)[-count:] for each in (lasting, *flags[1:]))
        return (seconds > 0) | (pianos > PIANO_SHARE * frames)


def _sums(flags: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """How many of the last ``count`` are set, up to each: [n]."""
    total = np.concatenate([np.zeros(count, np.int64), np.cumsum(flags)])
    return total[count:] - total[:-count]
