"""Notes of scores, performances and recordings as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from model.config import HOP, PITCHES, SAMPLE_RATE
from model.instruments import UNKNOWN
from training.arrays import F32, F64, I64, Bools

FRAME_S = HOP / SAMPLE_RATE  # seconds from one frame to the next
FRAME_UNKNOWN, ONSET_UNKNOWN = 1, 2
"""Bits of an uncertain region. The first marks frames and offsets, and the second marks onsets."""


@dataclass(frozen=True)
class Notes:
    """Notes as parallel arrays of shape [n], sorted by onset. Times are in seconds."""

    onset: F64
    offset: F64  # end of the sound
    pitch: NDArray[np.int16]
    velocity: F32  # 1 to 127; 0 if unknown
    part: NDArray[np.int16]  # index into ``Piece.programs``, or into the voices of ``render``
    released: F64  # release of the key; a pedal may hold the sound longer
    instrument: NDArray[np.int8]  # class number (``model.config.INSTRUMENTS``) or UNKNOWN

    def __len__(self) -> int:
        return len(self.onset)

    def where(self, index: NDArray[Any]) -> Notes:
        """Return the notes that a boolean mask or an index array selects."""
        return Notes(*(column[index] for column in vars(self).values()))

    def replaced(self, **arrays: NDArray[Any]) -> Notes:
        """Return the notes with some arrays replaced. A new ``offset`` also becomes the release of
        the keys, unless ``released`` is given."""
        return replace(self, **{"released": arrays.get("offset", self.released), **arrays})

    def ending(self, offset: F64) -> Notes:
        """Return the notes with sounds that end at ``offset``. Keys are released as before, but at
        the latest at ``offset``."""
        return self.replaced(offset=offset, released=np.minimum(self.released, offset))

    def played_by(self, number: int) -> Notes:
        """Return the notes with the instrument class ``number``."""
        return self.replaced(instrument=np.full(len(self), number, np.int8))

    def shifted(self, seconds: float) -> Notes:
        """Return the notes moved by ``seconds``, which may be negative. No note starts before 0."""
        onset = np.maximum(0, self.onset + seconds)
        return self.replaced(onset=onset, offset=np.maximum(onset, self.offset + seconds))

    def roll(self, frames: int, frame_s: float) -> Bools:
        """Return a piano roll, (frames, PITCHES). Frame f is true for the pitches of notes with
        onset <= f * frame_s < offset."""
        out = np.zeros((frames, PITCHES), dtype=bool)
        start, stop = (np.ceil(t / frame_s - 1e-9).astype(int) for t in (self.onset, self.offset))
        for begin, end, pitch in zip(start, stop, self.pitch, strict=True):
            out[begin:end, pitch] = True
        return out


def notes_of(
    onset: ArrayLike,
    offset: ArrayLike,
    pitch: ArrayLike,
    velocity: ArrayLike = 0,
    part: ArrayLike = 0,
    instrument: ArrayLike = UNKNOWN,
) -> Notes:
    """Build notes, with keys released at the offsets. Scalars apply to all notes."""
    begin = np.asarray(onset, np.float64)
    end = np.asarray(offset, np.float64)
    return Notes(
        begin,
        end,
        np.asarray(pitch).astype(np.int16),
        np.full(len(begin), velocity, np.float32),
        np.full(len(begin), part, np.int16),
        end,
        np.full(len(begin), instrument, np.int8),
    )


def notes_of_rows(rows: NDArray[Any]) -> Notes:
    """Build notes, sorted by onset, from rows in any order. The columns are onset and offset in
    seconds, pitch, velocity and optionally instrument class."""
    onset, offset, pitch, velocity, *more = rows[np.lexsort((rows[:, 2], rows[:, 0]))].T
    return notes_of(onset, offset, np.rint(pitch), velocity, 0, *more)


def joined(groups: Sequence[Notes]) -> Notes:
    """Concatenate groups of notes and sort them by onset."""
    columns = zip(*(vars(notes).values() for notes in (notes_of([], [], []), *groups)), strict=True)
    notes = Notes(*map(np.concatenate, columns))
    return notes.where(np.argsort(notes.onset, kind="stable"))


def merged(intervals: F64) -> F64:
    """Sort intervals, [n, 2], and merge intervals that overlap or touch."""
    if len(intervals) < 2:
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    first = np.concatenate([[True], intervals[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([intervals[first, 0], reach[last]], axis=1)


def with_pedal(notes: Notes, pedal: F64) -> Notes:
    """Extend each offset that falls into a pedal press to the end of the press. pedal: [n, 2]."""
    if not len(pedal) or not len(notes):
        return notes
    pedal = merged(pedal)
    press = np.searchsorted(pedal[:, 0], notes.offset, side="right") - 1
    release = np.where(press >= 0, pedal[press, 1], -np.inf)
    return notes.ending(np.maximum(notes.offset, release))


def next_of_same_pitch(pitch: NDArray[np.integer], onset: F64) -> NDArray[np.intp]:
    """Return for each of n notes the index of the next note of its pitch, or n if there is none."""
    order = np.lexsort((onset, pitch))
    again = np.full(len(pitch), len(pitch), np.intp)
    same = np.diff(pitch[order]) == 0
    again[order[:-1][same]] = order[1:][same]
    return again


def next_onsets(pitch: NDArray[np.integer], onset: F64) -> F64:
    """Return for each note the onset of the next note of its pitch, or infinity."""
    return np.append(onset, np.inf)[next_of_same_pitch(pitch, onset)]


def nearest(onset_s: F64, pitch: NDArray, at_s: F64, at_pitch: I64, within_s: float) -> I64:
    """Return for each (time, pitch) the index of the nearest note, or -1. The note has this pitch,
    and its onset is within ``within_s`` of this time."""
    apart = 1e6  # distance between pitches in seconds, greater than any within_s
    tree = KDTree(np.stack([onset_s, apart * pitch], axis=1))
    positions = np.stack([at_s, apart * at_pitch], axis=1)
    distance_s, note = tree.query(positions, p=np.inf)
    return np.where(distance_s <= within_s, note, -1)
