"""Notes of scores, performances and recordings as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.config import PITCHES
from model.instruments import UNKNOWN
from training.arrays import F32, F64, I64, Bools

FRAME_UNKNOWN, ONSET_UNKNOWN = 1, 2
"""Bits: what is not known about the notes of a pitch in a span of time."""


@dataclass(frozen=True)
class Notes:
    """Notes as parallel arrays of shape [n], sorted by onset.

    Times are in seconds; ``velocity`` is 1..127 and ``part`` indexes the piece's programs.
    ``released`` is when the key is let go, ``offset`` when the sound ends; a pedal may lie between.
    ``instrument`` is a class number (``model.config.INSTRUMENTS``) or UNKNOWN.
    A velocity of 0 means unknown.
    """

    onset: F64
    offset: F64
    pitch: NDArray[np.int16]
    velocity: F32
    part: NDArray[np.int16]
    released: F64 = None  # type: ignore[assignment]  # like ``offset``
    instrument: NDArray[np.int8] = None  # type: ignore[assignment]  # not known

    def __post_init__(self) -> None:
        if self.instrument is None:
            object.__setattr__(self, "instrument", np.full(len(self.onset), UNKNOWN, np.int8))
        if self.released is None:
            object.__setattr__(self, "released", self.offset)

    def __len__(self) -> int:
        return len(self.onset)

    @property
    def has_velocities(self) -> bool:
        """Whether velocities vary: data sets without velocities give all notes the same."""
        return len(np.unique(self.velocity)) > 1

    def where(self, index: NDArray[Any]) -> Notes:
        """The notes that a boolean mask or an index array selects."""
        return Notes(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def moved(self, **arrays: NDArray[Any]) -> Notes:
        """The notes with some arrays replaced; keys are released when the sound ends."""
        return replace(self, **{"released": arrays.get("offset", self.released), **arrays})

    def lengthened(self, offset: F64) -> Notes:
        """The notes sound until ``offset``; key releases do not change."""
        return self.moved(offset=offset, released=self.released)

    def shortened(self, offset: F64) -> Notes:
        """The notes end at ``offset``, their keys no later."""
        return self.moved(offset=offset, released=np.minimum(self.released, offset))

    def shifted(self, seconds: float) -> Notes:
        """The notes moved later; none begins before 0."""
        onset = np.maximum(0, self.onset + seconds)
        return self.moved(onset=onset, offset=np.maximum(onset, self.offset + seconds))

    def roll(self, frames: int, frame_s: float) -> Bools:
        """(frames, PITCHES): note on at time f * frame_s iff onset <= time < offset."""
        out = np.zeros((frames, PITCHES), dtype=bool)
        first = np.ceil(self.onset / frame_s - 1e-9).astype(int)
        last = np.ceil(self.offset / frame_s - 1e-9).astype(int)
        for begin, end, pitch in zip(first, last, self.pitch, strict=True):
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
    """Notes from numbers of any type; single ones behind the pitch are those of all notes."""
    onset = np.asarray(onset, np.float64)
    return Notes(
        onset,
        np.asarray(offset, np.float64),
        np.asarray(pitch).astype(np.int16),
        np.full(len(onset), velocity, np.float32),
        np.full(len(onset), part, np.int16),
        instrument=np.full(len(onset), instrument, np.int8),
    )


def notes_of_rows(rows: ArrayLike) -> Notes:
    """Rows of onset s, offset s, pitch, velocity and optionally class, in any order, by onset."""
    table = np.asarray(rows, np.float64)
    table = table.reshape(-1, table.shape[1] if table.ndim == 2 else 4)
    onset, offset, pitch, velocity, *more = table[np.lexsort((table[:, 2], table[:, 0]))].T
    instrument = more[0] if more else UNKNOWN
    return notes_of(onset, offset, np.rint(pitch), velocity, instrument=instrument)


def joined(groups: Sequence[Notes]) -> Notes:
    """All notes of several groups, by onset."""
    if not groups:
        return notes_of([], [], [])
    names = Notes.__dataclass_fields__
    notes = Notes(*(np.concatenate([getattr(n, name) for n in groups]) for name in names))
    return notes.where(np.argsort(notes.onset, kind="stable"))


def merged(intervals: F64) -> F64:
    """Sort [n, 2] intervals and join those that overlap."""
    if len(intervals) < 2:
        return intervals
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(intervals[:, 1])
    first = np.concatenate([[True], intervals[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([intervals[first, 0], reach[last]], axis=1)


def with_pedal(notes: Notes, pedal: F64) -> Notes:
    """Extends each offset that falls into a pedal press to the release of the pedal."""
    if not len(pedal) or not len(notes):
        return notes
    press = np.searchsorted(pedal[:, 0], notes.offset, side="right") - 1
    release = np.where(press >= 0, pedal[press, 1], -np.inf)
    return notes.lengthened(np.maximum(notes.offset, release))


def next_strokes(pitch: NDArray[np.integer], onset: F64) -> NDArray[np.intp]:
    """Index of the next note of the same pitch for each note [n]; n if there is none."""
    order = np.lexsort((onset, pitch))
    again = np.full(len(pitch), len(pitch), np.intp)
    same = np.diff(pitch[order]) == 0
    again[order[:-1][same]] = order[1:][same]
    return again


def nearest(onset_s: F64, pitch: NDArray, at_s: F64, at_pitch: I64, within_s: float) -> I64:
    """For each place the note of its pitch that begins nearest; -1 if none is near enough."""
    found = np.full(len(at_s), -1)
    for one in np.unique(at_pitch):
        notes = np.flatnonzero(pitch == one)
        if len(notes):
            places = np.flatnonzero(at_pitch == one)
            distance = np.abs(onset_s[notes] - at_s[places, None])
            best = distance.argmin(axis=1)
            near = distance[np.arange(len(places)), best] <= within_s
            found[places[near]] = notes[best[near]]
    return found
