"""Detects monophonic music, and decodes it as the best path through its frames.

In each frame a path is either in a state p, the pitch of a note, or in silence. A path gains
g[f, p] in state p of frame f, and pays the cost c[f, p] if a note starts there. Silence has no gain
or cost. With A = AHEAD_FRAMES, let V[f, p] be the gain of the best path through frames f to f + A
that starts in state p. A note that sounds in state p ends before frame f if

    V[f, q] - c[f, q] > V[f, p] for a state q        or        V[f, silence] > V[f, p]

It is followed by q or by silence, whichever gains more. The past matters only through the sounding
note. The decision on frame f is made when frame f + A arrives, and is final.

The states of ``SemitoneLine`` are the 128 pitches. With y and o the probabilities of the frame and
onset heads:

    g[f, p] = log-odds of (y[f, p] + SPREAD (y[f, p - 1] + y[f, p + 1])) + bias
    c[f, p] = COST - ONSET_WEIGHT max(0, log-odds of o[f, p] - log-odds of MIN_ONSET)

SPREAD prevents vibrato from splitting a note. The minimum of c is MIN_COST. The bias grows from
BIAS with the share of recent audible frames in which the network is uncertain. Uncertainty is
typical of instruments that the network was not trained on. If the network is certain, the smaller
bias lets notes end sooner.

``service.notes.singing`` defines the states for singers.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.events import NoteEvent
from service.notes.frames import OVERTONES

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)

AHEAD_FRAMES = 8
MIN_FRAMES = 6  # minimum length of a note
MEMORY_FRAMES = 172  # number of latest frames that decide the bias and whether music is polyphonic
SECOND_THRESHOLD, SECOND_FRAMES = 0.5, 5

PIANO = "instrument:piano"
PIANO_SHARE = 0.3  # music is polyphonic if a piano has a larger share of the frames with sound
_NEAR = 2  # maximum distance, in semitones, of two pitches that may be one gliding or wavering note
_APART = np.abs(np.subtract.outer(np.arange(PITCHES), np.arange(PITCHES)))
_UNRELATED = (_APART > _NEAR) & ~np.isin(_APART, OVERTONES)

# Gains and costs are natural log-odds.
BIAS = 1.0  # gain of a note over silence in a frame whose frame probability is 0.5
DOUBT_BIAS = 3.5  # maximum addition to the bias if the network was uncertain
COST = 15.0  # cost of the start of a note without onset probability
ONSET_WEIGHT = np.float32(2.5)
MIN_ONSET = np.float32(0.05)
MIN_COST = np.float32(1.0)
AGAIN_THRESHOLD = 0.35  # minimum onset probability at which the sounding pitch starts again
SPREAD = np.float32(0.3)
AUDIBLE, CERTAIN = 0.1, 0.5
"""A frame is audible, or certain, if the frame probability of its likeliest pitch reaches this
value. Audible frames that are not certain are uncertain."""
UNCERTAIN_SHARES = (0.2, 0.6)
"""The addition to the bias rises from 0 at the first share of uncertain frames to DOUBT_BIAS at the
second."""
PRIOR = (0.3, 20)  # prior share of uncertain frames, and its weight in frames
_MIN_PROBABILITY = np.float32(5e-3)  # minimum distance of probabilities from 0 and 1


class Gains(NamedTuple):
    """Gains of the best paths from one frame on."""

    start: float  # gain if a note starts in this frame, minus the cost of its start
    pitch: int  # MIDI note number of the note that starts
    silent: float  # gain if the frame is silent
    held: list[float]  # for each sounding note, gain if it continues


def log_odds(probabilities: F32) -> F32:
    bounded = np.clip(probabilities, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return np.log(bounded / (1 - bounded))


_NO_ONSET = log_odds(np.array(MIN_ONSET))


def best_paths(
    gain: NDArray[Real], cost: NDArray[Real], bias: NDArray[Real]
) -> tuple[NDArray[Real], NDArray[Real], NDArray[np.bool_]]:
    """Return the gains of the best paths of AHEAD_FRAMES + 1 frames that start at each of n frames:
    [n, k] for paths that start in each of k states, and [n] for paths that start in silence. The
    third array, [AHEAD_FRAMES, n, k], is true at i if a path that has been in its first state until
    then leaves it i + 1 frames after its start.

    Args:
        gain: gain of each state, [n + AHEAD_FRAMES, k].
        cost: cost of a start in each state, [n + AHEAD_FRAMES, k] or [n + AHEAD_FRAMES, 1].
        bias: added to all gains of the paths that start at a frame, [n].
    """
    count, extra = len(bias), bias[:, None]
    left = np.zeros((AHEAD_FRAMES, count, gain.shape[1]), np.bool_)
    note, silent = gain[AHEAD_FRAMES:] + extra, np.zeros(count, gain.dtype)
    for i in reversed(range(AHEAD_FRAMES)):  # extend the paths back by one frame
        silent = np.maximum(silent, (note - cost[i + 1 : i + 1 + count]).max(axis=1))
        np.less(note, silent[:, None], out=left[i])
        note = gain[i : i + count] + extra + np.maximum(note, silent[:, None])
    return note, silent, left


class SemitoneLine:
    """Best paths whose states are the 128 pitches, for all instruments except singers."""

    def __init__(self) -> None:
        self._pitches: list[int] = []  # states that gain more than silence in some frame
        self._sounding = self._starting = np.zeros((0, 0), np.float32)
        self._silent = np.zeros(0, np.float32)

    def read(self, frame: F32, onset: F32, bias: F32) -> None:
        """Compute the best paths that start at each frame of the next block. Shapes: ``frame`` and
        ``onset`` [n + AHEAD_FRAMES, 128], ``bias`` [n]."""
        spread = frame.copy()
        spread[:, 1:] += SPREAD * frame[:, :-1]
        spread[:, :-1] += SPREAD * frame[:, 1:]
        highest = np.maximum(_MIN_PROBABILITY, spread.max(axis=0))
        pitches = np.flatnonzero(highest > 1 / (1 + np.exp(bias.max())))
        self._pitches = pitches.tolist()
        if self._pitches:
            excess = np.maximum(0, log_odds(onset[:, pitches]) - _NO_ONSET)
            cost = np.maximum(MIN_COST, COST - ONSET_WEIGHT * excess)
            odds = log_odds(spread[:, pitches])
            self._sounding, self._silent, _ = best_paths(odds, cost, bias)
            self._starting = self._sounding - cost[: len(bias)]

    def gains(self, i: int, sounding: Iterable[NoteEvent]) -> Gains | None:
        """Return the gains of the paths that start at frame i of the block; None if silence gains
        more than any note in every frame of the block."""
        if not self._pitches:
            return None
        best = int(self._starting[i].argmax())
        notes = dict(zip(self._pitches, self._sounding[i].tolist(), strict=True))
        held = [notes.get(note.pitch, -math.inf) for note in sounding]
        start = float(self._starting[i, best])
        return Gains(start, self._pitches[best], float(self._silent[i]), held)


class MonophonyDetector:
    """Detects monophonic music, and computes the bias from the network's uncertainty.

    Music is polyphonic for MEMORY_FRAMES after a second pitch has sounded for SECOND_FRAMES. A
    second pitch has a frame probability of at least SECOND_THRESHOLD. Its distance from the
    likeliest pitch is more than _NEAR semitones and none of OVERTONES. A piano counts as
    polyphonic, because its notes overlap.
    """

    def __init__(self, heads: tuple[str, ...]) -> None:
        self._frame = heads.index("frame")
        self._piano = heads.index(PIANO) if PIANO in heads else None
        self._run = 0  # consecutive frames, up to the latest, with a second pitch
        # Flags of the latest frames: a second pitch lasts, a pitch sounds, a piano sounds, a pitch
        # is audible, a pitch is certain.
        self._latest = deque([[False] * 5] * MEMORY_FRAMES)
        self._counts = [0] * 5

    def process(self, block: F32) -> tuple[list[bool], F32]:
        """Process the next n frames, [heads, n, 128]. Return, for each frame, True if the music is
        polyphonic, and the bias of notes, [n]. Both depend on the frames up to it."""
        frame = block[self._frame]
        rows, likeliest = np.arange(len(frame)), frame.argmax(axis=1)
        top = frame[rows, likeliest]
        sounds = top >= SECOND_THRESHOLD
        second = piano = np.zeros_like(sounds)
        if sounds.any():
            second = np.where(_UNRELATED[likeliest], frame, 0).max(axis=1) >= SECOND_THRESHOLD
            if self._piano is not None:
                piano = sounds & (block[self._piano, rows, likeliest] >= 0.5)
        flags = np.stack([second, sounds, piano, top >= AUDIBLE, top >= CERTAIN], axis=1)
        polyphonic, bias = [], []
        for has_second, *others in flags.tolist():
            self._run = self._run + 1 if has_second else 0
            newest = [self._run >= SECOND_FRAMES, *others]
            self._latest.append(newest)
            oldest = self._latest.popleft()
            if newest != oldest:
                changes = zip(self._counts, newest, oldest, strict=True)
                self._counts = [count + new - old for count, new, old in changes]
            seconds, sounding, pianos, audible, certain = self._counts
            polyphonic.append(seconds > 0 or pianos > PIANO_SHARE * sounding)
            bias.append(self._bias(audible, certain))
        return polyphonic, np.array(bias, np.float32)

    def _bias(self, audible: int, certain: int) -> float:
        """Return the bias of notes for these numbers of audible and certain frames."""
        prior_share, prior_frames = PRIOR
        uncertain = audible - certain + prior_share * prior_frames
        share = uncertain / (audible + prior_frames)
        low, high = UNCERTAIN_SHARES
        weight = min(1.0, max(0.0, (share - low) / (high - low)))
        return BIAS + DOUBT_BIAS * weight
