"""Decodes singing as the best path in continuous pitch, with states that are 10 cents apart.

A singer glides, wavers and is rarely exactly on a semitone. The notes of a song are therefore steps
of a pitch curve, and are rounded to semitones at the end. In frame f, let m be the likeliest pitch,
corrected by the row CENTS. Let y be the frame probability of m plus half of the probabilities of
its two neighbours, and o the largest onset probability of these three pitches. In the terms of
``service.notes.monophonic``, and with the log-odds L(p) = log(p / (1 - p)), the gain of a note of
pitch mu and the cost of its start are

    g[f, mu] = L(y) + 1 - y min(|m - mu|, 2 semitones)
    c[f]     = max(1, 7 - max(0, L(o) + 3))

The pitch mu of a sounding note is not fixed. The note continues with the mu that best suits both
its past and its future. Let P[f, mu] be the sum of -y min(|m - mu|, 2) over the note's last frames
before f, at most PAST_FRAMES. The gain of the note is then

    max over mu of (P[f, mu] + V[f, mu]) - max over mu of P[f, mu]

A note_on is sent AHEAD_FRAMES after the first frame of the note. The note gets the semitone with
the largest sum of frame probabilities until the path leaves its first state, over at least
MIN_FRAMES. Each probability is weighted by the square of its frame's number in the note, from 1,
because many notes start with a glide. All gains are integers in float64, so that their sums are
exact and do not depend on the frame at which a sum starts.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES, SCALE_CENTS
from service.notes.events import NoteEvent
from service.notes.monophonic import AHEAD_FRAMES, F32, F64, MIN_FRAMES, Gains, best_paths, log_odds

PAST_FRAMES = 128  # maximum number of past frames of a sounding note that count (1.5 s)
COST, ONSET_GAIN, MIN_COST = 7.0, 3.0, 1.0
STEPS = 10  # states per semitone
CAP = 2 * STEPS  # maximum distance between pitches, in states; larger distances count as this
_WEIGHTS = 1000  # weights of distances are probabilities y in units of 1 / 1000
MIN_WEIGHT = 50  # lower weights are 0
_UNIT = STEPS * _WEIGHTS  # factor that makes all gains integers
_KEPT = PAST_FRAMES + AHEAD_FRAMES
_PITCH, _WEIGHT, _GAIN, _COST = range(4)
# First column, sums P before each column [columns + 1, states], and the results of ``best_paths``.
_Paths = tuple[int, F64, F64, F64, NDArray[np.bool_]]


class SungLine:
    """Best paths in continuous pitch, for a singer without accompaniment."""

    def __init__(self) -> None:
        self._curve = np.zeros((4, _KEPT))  # pitch in states, weight, gain at that pitch, cost
        self._curve[_GAIN] = -_UNIT
        self._oldest = -_KEPT  # frame of the first column
        self._rows = np.zeros((AHEAD_FRAMES, PITCHES), np.float32)
        self._paths: _Paths | None = None  # best paths of this block, computed when needed

    def resume(self, first_frame: int) -> None:
        """Continue where another tracker stopped. The next block starts with ``first_frame``."""
        self._oldest = first_frame - _KEPT

    def read(self, frame: F32, onset: F32, cents: F32, offset_cents: float) -> None:
        """Append a block of n frames to the pitch curve.

        Args:
            frame: probabilities, [AHEAD_FRAMES + n, 128], a view that stays valid for this block.
            onset, cents: rows of the block, [n, 128].
            offset_cents: added to the cents.
        """
        self._rows, frame = frame, frame[AHEAD_FRAMES:]
        rows, best = np.arange(len(frame)), frame.argmax(axis=1)
        below, above = np.maximum(best - 1, 0), np.minimum(best + 1, PITCHES - 1)
        own, sides = frame[rows, best], frame[rows, below] + frame[rows, above]
        odds = log_odds(own + np.float32(0.5) * sides)
        peak = cents[rows, best]
        deviation = np.where(peak > 0, (peak - 0.5) * SCALE_CENTS + offset_cents, 0.0)
        onsets = np.maximum(onset[rows, best], np.maximum(onset[rows, below], onset[rows, above]))
        cost = np.maximum(MIN_COST, COST - np.maximum(0, log_odds(onsets) + ONSET_GAIN))
        weight = np.rint(_WEIGHTS / (1 + np.exp(-odds.astype(float))))
        weight[weight < MIN_WEIGHT] = 0
        curve = np.empty((4, _KEPT + len(frame)))
        curve[:, :_KEPT] = self._curve[:, -_KEPT:]
        curve[_PITCH, _KEPT:] = np.rint(STEPS * (best + deviation / 100))
        curve[_WEIGHT, _KEPT:] = weight
        curve[_GAIN, _KEPT:] = np.rint(_UNIT * (odds.astype(float) + 1))
        curve[_COST, _KEPT:] = np.rint(_UNIT * cost.astype(float))
        self._oldest += self._curve.shape[1] - _KEPT
        self._curve, self._paths = curve, None

    def gains(self, i: int, sounding: Iterable[NoteEvent]) -> Gains | None:
        """Return the gains of the paths that frame i of the block decides, which start AHEAD_FRAMES
        before it; None if silence gains more than any note."""
        column = PAST_FRAMES + i
        span = slice(column, column + AHEAD_FRAMES + 1)
        if self._curve[_GAIN, span].max() < 0:
            return None
        starts = [max(note.frame - self._oldest, column - PAST_FRAMES) for note in sounding]
        if self._paths is None:
            self._paths = self._best_paths(min([PAST_FRAMES, *starts]))
        first, past, note_gain, silent_gain, leaves = self._paths
        best = int(note_gain[i].argmax())  # state of the note that may start
        start_gain = float(note_gain[i, best] - self._curve[_COST, column])
        held = []
        for start in starts:
            past_gain = past[column - first] - past[start - first]
            held.append(float((past_gain + note_gain[i]).max() - past_gain.max()))
        left = leaves[:, i, best]
        length = int(left.argmax()) + 1 if left.any() else AHEAD_FRAMES + 1
        rows = self._rows[i : i + max(MIN_FRAMES, length)]
        weights = np.arange(1, len(rows) + 1) ** 2
        pitch = int((weights @ rows).argmax())
        return Gains(start_gain, pitch, float(silent_gain[i]), held)

    def _best_paths(self, first: int) -> _Paths:
        """Return the best paths of the block. first: first column at which P is needed."""
        pitch, weight, gain, cost = self._curve[:, first:]
        states = np.unique(pitch[weight > 0])  # the gains have their maximum at one of the pitches
        near = np.maximum(0, CAP - np.abs(pitch[:, None] - states)) * weight[:, None]
        past = np.zeros((len(pitch) + 1, len(states)))
        np.cumsum(near, axis=0, out=past[1:])
        begin = PAST_FRAMES - first  # first frame of the first paths, relative to ``first``
        gains = near[begin:] + (gain - CAP * weight)[begin:, None]
        bias = np.zeros(len(gains) - AHEAD_FRAMES)
        return first, past, *best_paths(gains, cost[begin:, None], bias)
