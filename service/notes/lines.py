"""Single lines: whether one plays, and the best path through its frames.

**One line, or several.** A second pitch is heard in a frame if a pitch that is neither near the
likeliest nor in its harmonic series has a frame probability of ``second_threshold``. If that lasts
for ``second_frames``, several lines play, for ``memory_frames`` from then on. A piano counts as
several: its notes ring on.

**The path.** In each frame of a line one pitch sounds, or none. Let y and o be the probabilities of
the frame and onset heads. A path gains g in a frame f of pitch p, and pays c if p begins there:

    g[f, p] = log-odds of (y[f, p] + SPREAD (y[f, p - 1] + y[f, p + 1])) + bias     (silence: 0)
    c[f, p] = cost - onset_weight max(0, log-odds of o[f, p] - log-odds of LEAST_ONSET)

SPREAD keeps a vibrato together; falling silent is free; c is at least LEAST_COST. The bias grows
with the share of the latest frames with a pitch in which the network is in doubt: it is surer of
the players that it knows, and their notes end sooner after its doubt.

With V[f, p] the gain of the best path through f ... f + A that is in p at f (A: ``ahead_frames``),
the note that sounds, p, gives way to another pitch q or to silence, whichever is best, if

    V[f, q] - c[f, q] > V[f, p]        or        V[f, silence] > V[f, p]

The past matters through the sounding note alone: each step is final once frame f + A is known.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import OVERTONES
from service.notes.tracker_settings import LineSettings

PIANO = "instrument:piano"
PIANO_SHARE = 0.3
_NEAR = 2  # semitones: a glide, or a vibrato between two pitches
_APART = np.abs(np.subtract.outer(np.arange(PITCHES), np.arange(PITCHES)))
_UNRELATED = (_APART > _NEAR) & ~np.isin(_APART, OVERTONES)

SPREAD = np.float32(0.3)
LEAST_ONSET = np.float32(0.05)
LEAST_COST = np.float32(1.0)
HEARD, SURE = 0.1, 0.5
"""Frame probability of the likeliest pitch from which on it is heard, and without doubt."""
DOUBT = (0.2, 0.6)
"""Shares of doubtful frames up to which a player is known well, and from which on hardly."""
PRIOR = (0.3, 20)
"""Doubt before the first frames, and how many of these it counts for."""
_LEAST = np.float32(5e-3)  # probabilities below it are alike


class LineListener:
    """Hears whether more than one line has sounded lately, or mostly a piano; and how surely."""

    def __init__(self, settings: LineSettings, heads: tuple[str, ...]) -> None:
        self._settings = settings
        self._frame = heads.index("frame")
        self._piano = heads.index(PIANO) if PIANO in heads else None
        self.history_frames = settings.memory_frames + settings.second_frames
        self._flags = np.zeros((5, self.history_frames), np.bool_)  # of the latest frames

    def hear(self, known: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Of the next n frames, [heads, n, 128]: whether several lines play, and the bias of notes,
        when each is the newest, [n]."""
        line, frame = self._settings, known[self._frame]
        rows, likeliest = np.arange(len(frame)), frame.argmax(axis=1)
        top = frame[rows, likeliest]
        second = np.where(_UNRELATED[likeliest], frame, 0).max(axis=1) >= line.second_threshold
        sounds = top >= line.second_threshold
        piano = np.zeros_like(sounds)
        if self._piano is not None:
            piano = sounds & (known[self._piano, rows, likeliest] >= 0.5)
        flags = np.stack([second, sounds, piano, top >= HEARD, top >= SURE])
        flags = np.concatenate([self._flags, flags], axis=1)
        self._flags = flags[:, -self.history_frames :]
        lasting = _counts(flags[0], line.second_frames) == line.second_frames
        seconds = _counts(lasting, line.memory_frames)[-len(frame) :]
        count, pianos, heard, sure = _counts(flags[1:], line.memory_frames)[:, -len(frame) :]
        doubt, frames = PRIOR
        doubt = (heard - sure + doubt * frames) / (heard + frames)
        bias = line.bias + line.doubt_bias * np.interp(doubt, DOUBT, (0, 1))
        return (seconds > 0) | (pianos > PIANO_SHARE * count), bias.astype(np.float32)


def _counts(flags: NDArray[np.bool_], latest: int) -> NDArray[np.int64]:
    """How many of the ``latest`` are set, up to each; the last axis."""
    total: NDArray[np.int64] = np.cumsum(flags, axis=-1, dtype=np.int64)
    total[..., latest:] -= total[..., :-latest].copy()
    return total


class Paths(NamedTuple):
    """The gains of the best paths from each of n frames on that begin in a note; in silence; in a
    note that has to be paid for."""

    note: NDArray[np.float32]  # [n, 128]
    silent: NDArray[np.float32]  # [n]
    begun: NDArray[np.float32]  # [n, 128]


def best_paths(
    line: LineSettings,
    frame: NDArray[np.float32],
    onset: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> Paths:
    """From each of n frames on; ``frame`` and ``onset`` are [n + A, 128], bias [n]."""
    count, ahead = len(bias), len(frame) - len(bias)
    spread = frame.copy()
    spread[:, 1:] += SPREAD * frame[:, :-1]
    spread[:, :-1] += SPREAD * frame[:, 1:]
    odds, gain = log_odds(spread), bias[:, None]
    lowered = np.float32(line.onset_weight) * np.maximum(0, log_odds(onset) - _NO_ONSET)
    cost = np.maximum(LEAST_COST, np.float32(line.cost) - lowered)
    note, silent = odds[ahead:] + gain, np.zeros(count, np.float32)
    for i in reversed(range(ahead)):  # from the paths one frame later on
        left = np.maximum(silent, (note - cost[i + 1 : i + 1 + count]).max(axis=1))
        note = odds[i : i + count] + gain + np.maximum(note, left[:, None])
        silent = left
    return Paths(note, silent, note - cost[:count])


def log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    bounded = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(bounded / (1 - bounded))


_NO_ONSET = log_odds(np.array(LEAST_ONSET))
