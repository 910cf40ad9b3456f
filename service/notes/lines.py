"""Single lines: whether one plays, and the best path through its frames.

**One line, or several.** A second pitch is heard in a frame if a pitch that is neither near the
likeliest nor in its harmonic series has a frame probability of SECOND_THRESHOLD. If that lasts for
SECOND_FRAMES, several lines play, for MEMORY_FRAMES from then on. A piano counts as several: its
notes ring on.

**The path.** In each frame of a line one pitch sounds, or none. Let y and o be the probabilities of
the frame and onset heads. A path gains g in a frame f of pitch p, and pays c if p begins there:

    g[f, p] = log-odds of (y[f, p] + SPREAD (y[f, p - 1] + y[f, p + 1])) + bias     (silence: 0)
    c[f, p] = cost - onset_weight max(0, log-odds of o[f, p] - log-odds of LEAST_ONSET)

SPREAD keeps a vibrato together; falling silent is free; c is at least LEAST_COST. The bias grows
with the share of the latest frames with a pitch in which the network is in doubt: it is surer of
the players that it knows, and their notes end sooner after its doubt.

With V[f, p] the gain of the best path through f ... f + A that is in p at f (A: AHEAD_FRAMES),
the note that sounds, p, gives way to another pitch q or to silence, whichever is best, if

    V[f, q] - c[f, q] > V[f, p]        or        V[f, silence] > V[f, p]

The past matters through the sounding note alone: each step is final once frame f + A is known. Out
of silence a note begins only if y, or that of a neighbouring pitch, has a mean of LEAST_MEAN in
these frames: much of speech has less.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.frames import OVERTONES
from service.notes.tracker_settings import LineSettings

SECOND_THRESHOLD, SECOND_FRAMES = 0.5, 5
MEMORY_FRAMES = 172  # how surely a player is heard is judged by as many, too
AHEAD_FRAMES = 8
LEAST_FRAMES = 6  # of a note
HISTORY_FRAMES = MEMORY_FRAMES + SECOND_FRAMES  # that affect the next

PIANO = "instrument:piano"
PIANO_SHARE = 0.3
_NEAR = 2  # semitones: a glide, or a vibrato between two pitches
_APART = np.abs(np.subtract.outer(np.arange(PITCHES), np.arange(PITCHES)))
_UNRELATED = (_APART > _NEAR) & ~np.isin(_APART, OVERTONES)

SPREAD = np.float32(0.3)
LEAST_ONSET = np.float32(0.05)
LEAST_COST = np.float32(1.0)
LEAST_MEAN = 0.15
HEARD, SURE = 0.1, 0.5
"""Frame probability of the likeliest pitch from which on it is heard, and without doubt."""
DOUBT = (0.2, 0.6)
"""Shares of doubtful frames up to which a player is known well, and from which on hardly."""
PRIOR = (0.3, 20)  # doubt before the first frames, and how many of these it counts for
_LEAST = np.float32(5e-3)  # probabilities below it are alike


class LineListener:
    """Hears whether more than one line has sounded lately, or mostly a piano; and how surely."""

    def __init__(self, settings: LineSettings, heads: tuple[str, ...]) -> None:
        self._settings = settings
        self._frame = heads.index("frame")
        self._piano = heads.index(PIANO) if PIANO in heads else None
        self._run = 0  # latest frames in a row in which a second pitch is heard
        # Of the latest frames: a second pitch lasts, any sounds, one of a piano, any is heard, and
        # surely.
        self._latest = deque([(False,) * 5] * MEMORY_FRAMES)
        self._counts = [0] * 5

    def hear(self, known: NDArray[np.float32]) -> tuple[list[bool], NDArray[np.float32]]:
        """Of the next n frames, [heads, n, 128]: whether several lines play, and the bias of notes,
        when each is the newest."""
        line, frame = self._settings, known[self._frame]
        rows, likeliest = np.arange(len(frame)), frame.argmax(axis=1)
        top = frame[rows, likeliest]
        sounds = top >= SECOND_THRESHOLD
        second = piano = sounds & False
        if sounds.any():
            others = np.where(_UNRELATED[likeliest], frame, 0).max(axis=1)
            second = others >= SECOND_THRESHOLD
            if self._piano is not None:
                piano = sounds & (known[self._piano, rows, likeliest] >= 0.5)
        flags = second, sounds, piano, top >= HEARD, top >= SURE
        several, bias = [], []
        for now in zip(*(flag.tolist() for flag in flags), strict=True):
            self._run = self._run + 1 if now[0] else 0
            now = (self._run >= SECOND_FRAMES, *now[1:])
            self._latest.append(now)
            old = self._latest.popleft()
            if now != old:
                self._counts = [c + n - o for c, n, o in zip(self._counts, now, old, strict=True)]
            seconds, count, pianos, heard, sure = self._counts
            several.append(seconds > 0 or pianos > PIANO_SHARE * count)
            doubt, frames = PRIOR
            doubt = (heard - sure + doubt * frames) / (heard + frames)
            unknown = (doubt - DOUBT[0]) / (DOUBT[1] - DOUBT[0])
            bias.append(line.bias + line.doubt_bias * min(1.0, max(0.0, unknown)))
        return several, np.array(bias, np.float32)


class Paths(NamedTuple):
    """The gains of the best paths from each of n frames on that begin in a note; in silence; in a
    note that has to be paid for. Pitches that are nowhere worth more than silence are left out."""

    pitches: list[int]  # k of them
    note: NDArray[np.float32]  # [n, k]
    silent: NDArray[np.float32]  # [n]
    begun: NDArray[np.float32]  # [n, k]


def best_paths(
    line: LineSettings,
    frame: NDArray[np.float32],
    onset: NDArray[np.float32],
    bias: NDArray[np.float32],
) -> Paths | None:
    """From each of n frames on; ``frame`` and ``onset`` are [n + A, 128], bias [n]. None: silence
    is best everywhere."""
    count, ahead = len(bias), len(frame) - len(bias)
    spread = frame.copy()
    spread[:, 1:] += SPREAD * frame[:, :-1]
    spread[:, :-1] += SPREAD * frame[:, 1:]
    worth = np.maximum(_LEAST, spread.max(axis=0)) > 1 / (1 + np.exp(bias.max()))
    pitches = np.flatnonzero(worth)
    if not len(pitches):
        return None
    odds, gain = log_odds(spread[:, pitches]), bias[:, None]
    lowered = log_odds(onset[:, pitches]) - _NO_ONSET
    cost = line.cost - np.float32(line.onset_weight) * np.maximum(0, lowered)
    cost = np.maximum(LEAST_COST, cost)
    note, silent = odds[ahead:] + gain, np.zeros(count, np.float32)
    for i in reversed(range(ahead)):  # from the paths one frame later on
        left = np.maximum(silent, (note - cost[i + 1 : i + 1 + count]).max(axis=1))
        note = odds[i : i + count] + gain + np.maximum(note, left[:, None])
        silent = left
    return Paths(pitches.tolist(), note, silent, note - cost[:count])


def log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    bounded = np.clip(probabilities, _LEAST, 1 - _LEAST)
    return np.log(bounded / (1 - bounded))


_NO_ONSET = log_odds(np.array(LEAST_ONSET))
