"""A first alignment of a score with a recording, by dynamic time warping.

Piano rolls of the written notes are compared with the model's frame and onset probabilities. The
score is padded with silence, since a recording may begin before the music and end after it. (Not
librosa's: a compiler at run time, numba, for one recursion.)
"""

from dataclasses import dataclass

import numpy as np

from model.config import PITCHES
from training.arrays import F32, F64, I64
from training.music.notes import Notes


@dataclass(frozen=True)
class TimeMap:
    """Increasing pairs of times in seconds, [n] each; linear in between, extrapolated at the mean
    pace."""

    score_s: F64
    audio_s: F64

    def __call__(self, times_s: F64) -> F64:
        """Times of the recording for times of the score."""
        span = float(self.score_s[-1] - self.score_s[0])
        pace = float(self.audio_s[-1] - self.audio_s[0]) / span if span else 1.0
        before = np.minimum(0, times_s - self.score_s[0])
        after = np.maximum(0, times_s - self.score_s[-1])
        inside = np.interp(times_s, self.score_s, self.audio_s)
        return np.asarray(inside + (before + after) * pace)


CELLS = 40_000_000  # limit for the table of costs, 5 bytes each
STEP_S = 0.04  # of the rolls; longer if the table would be too large
MARGIN_S = 1.0  # of silence around the score
ONSET_WEIGHT = 2.0  # of onsets relative to frames
STALL_COST = 0.25  # of a step on one side only, so both advance when in doubt
SILENT = 0.3  # norm of a silent slice


def warp(score: Notes, sounding: F32, onset: F32, frame_s: float) -> TimeMap:
    """The map from score time to recording time, to about STEP_S.

    Args:
        score: at any tempo.
        sounding, onset: probabilities, (frames, PITCHES).
        frame_s: from one frame to the next.
    """
    length_s = len(sounding) * frame_s
    # The written tempo is arbitrary: first scale both to the same length.
    heard = np.flatnonzero(onset.max(axis=1) > 0.5) * frame_s
    heard_s = float(heard[-1] - heard[0]) if len(heard) > 1 else length_s
    written_s = max(1e-3, float(score.onset[-1] - score.onset[0]))
    pace = max(1e-3, heard_s) / written_s
    step_s = max(STEP_S, float(np.sqrt(length_s * (heard_s + 2 * MARGIN_S) / CELLS)))
    begin_s = MARGIN_S - score.onset[0] * pace
    played = score.moved(onset=score.onset * pace + begin_s, offset=score.offset * pace + begin_s)
    slices = int((heard_s + 2 * MARGIN_S) / step_s) + 1
    written = _features(*_written(played, slices, step_s))
    edges = np.arange(0, len(sounding), step_s / frame_s).astype(int)
    audio = _features(*(np.maximum.reduceat(roll, edges) for roll in (sounding, onset)))
    path = _cheapest_path(1 - written @ audio.T)  # from 0, equal slices, to 1, no common notes
    # Where a score slice stalls, take its first slice: there its notes begin.
    at, first = np.unique(path[:, 0], return_index=True)
    score_s = (at * step_s - begin_s) / pace
    return TimeMap(score_s, path[first, 1] * step_s)


def _written(notes: Notes, slices: int, step_s: float) -> tuple[F32, F32]:
    onset = np.zeros((slices, PITCHES), np.float32)
    at = np.minimum((notes.onset / step_s).astype(int), slices - 1)
    onset[at, notes.pitch] = 1
    return np.maximum(notes.roll(slices, step_s), onset).astype(np.float32), onset


def _features(sounding: F32, onset: F32) -> F32:
    """Slices of norm 1, or less in silence, plus one entry for the remainder."""
    onset = onset.copy()
    onset[1:] += 0.5 * onset[:-1]  # tolerate an onset that is one slice late
    out = np.concatenate([sounding, ONSET_WEIGHT * onset], axis=1)
    out /= np.maximum(SILENT, np.linalg.norm(out, axis=1, keepdims=True))
    silence = np.sqrt(np.maximum(0, 1 - np.square(out).sum(axis=1, keepdims=True)))
    return np.concatenate([out, silence], axis=1).astype(np.float32)


def _cheapest_path(costs: F32) -> I64:
    """[steps, 2]: rows and columns from corner to corner, computed along the anti-diagonals."""
    rows, columns = costs.shape
    back = np.zeros((rows, columns), np.int8)  # 0: both advanced, 1: the row, 2: the column
    flat, back_flat = costs.ravel(), back.ravel()
    infinite = np.float32(np.inf)
    # Totals of the last two anti-diagonals by row, with a row before the first.
    last, before = np.full((2, rows + 1), infinite)
    for diagonal in range(rows + columns - 1):
        low, high = max(0, diagonal - columns + 1), min(rows, diagonal + 1)
        row = np.arange(low, high)
        cells = row * columns + diagonal - row
        arrivals = np.stack([before[row], last[row] + STALL_COST, last[row + 1] + STALL_COST])
        if diagonal == 0:
            arrivals[0] = 0
        choice = arrivals.argmin(axis=0)
        back_flat[cells] = choice
        now = np.full(rows + 1, infinite)
        now[row + 1] = arrivals[choice, np.arange(len(row))] + flat[cells]
        before, last = last, now
    path = [(rows - 1, columns - 1)]
    while path[-1] != (0, 0):
        row_at, column_at = path[-1]
        step = back[row_at, column_at]
        path.append((row_at - (step != 2), column_at - (step != 1)))
    return np.array(path[::-1])
