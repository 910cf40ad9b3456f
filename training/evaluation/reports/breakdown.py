"""Scores by octave and by polyphony, pooled over recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from training.music.metrics import NoteList

BINS = 1000  # of probability: average precision is exact to about 1/BINS
POLYPHONY = ("0", "1", "2", "3", "4", "5 to 6", "7 and more")
_POLYPHONY_GROUP = np.array([0, 1, 2, 3, 4, 5, 5, *[6] * (PITCHES - 6)])  # of 0 to 128 notes
OCTAVES = tuple(f"C{octave} to B{octave}" for octave in range(-1, 9)) + ("C9 to G9",)


@dataclass
class Counts:
    """Frames and notes of one group; sums over recordings."""

    notes: int = 0
    """Notes of the labels."""
    estimated: int = 0
    matched: int = 0
    """Notes found, by onset and pitch."""
    hits: int = 0
    """Frames x pitches that sound in both labels and notes found; similarly the next two."""
    label_frames: int = 0
    estimated_frames: int = 0
    sounding: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS + 1, np.int64))
    """Frames x pitches that sound in the labels, by probability."""
    silent: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS + 1, np.int64))

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def figures(self) -> dict[str, float | int | None]:
        """``notes`` and the scores; None where there is nothing to score."""
        frames, notes = self.label_frames + self.estimated_frames, self.notes + self.estimated
        return {
            "notes": self.notes,
            "estimated_notes": self.estimated,
            "frame_ap": self._average_precision(),
            "frame_f1": 2 * self.hits / frames if frames else None,
            "onset_recall": self.matched / self.notes if self.notes else None,
            "onset_precision": self.matched / self.estimated if self.estimated else None,
            "onset_f1": 2 * self.matched / notes if notes else None,
        }

    def _average_precision(self) -> float | None:
        if not self.label_frames:
            return None
        right = np.cumsum(self.sounding[::-1])
        predicted = right + np.cumsum(self.silent[::-1])
        precision = right / np.maximum(1, predicted)
        return float(np.sum(self.sounding[::-1] * precision) / right[-1])


def breakdowns(
    reference: NoteList,
    estimated: NoteList,
    matched: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    frame_s: float,
) -> tuple[dict[str, Counts], dict[str, Counts]]:
    """Counts of one recording by octave, and by the number of notes that sound in the labels: at
    the frame, or at the note's onset (that note included). A matched note counts where its label
    does.

    matched: ``metrics.matched_onsets``; probabilities: (frames, PITCHES).
    """
    frames = len(probabilities)
    label, estimate = (notes.roll(frames, frame_s) for notes in (reference, estimated))
    bins = np.clip(probabilities * BINS, 0, BINS).astype(np.int64)
    octave = np.broadcast_to(np.arange(PITCHES) // 12, label.shape)
    notes, found = reference.pitch // 12, estimated.pitch // 12
    rolls = label, estimate, bins
    octaves = _counts(OCTAVES, octave, *rolls, notes, found, notes[matched[:, 0]])
    if not frames:
        return octaves, {}
    group = _POLYPHONY_GROUP[label.sum(axis=1)]

    def at_onset(notes: NoteList) -> NDArray[np.int64]:
        at = np.ceil(notes.onset_s / frame_s - 1e-9).astype(int)
        return np.asarray(group[np.minimum(at, frames - 1)])

    notes, found = at_onset(reference), at_onset(estimated)
    found[matched[:, 1]] = notes[matched[:, 0]]
    groups = np.broadcast_to(group[:, None], label.shape)
    return octaves, _counts(POLYPHONY, groups, *rolls, notes, found, notes[matched[:, 0]])


def pooled_figures(recordings: Iterable[Mapping[str, Counts]]) -> dict[str, dict[str, Any]]:
    """The figures of all recordings together, with groups in order."""
    total: dict[str, Counts] = {}
    for recording in recordings:
        for name, counts in recording.items():
            total.setdefault(name, Counts()).add(counts)
    order = (*OCTAVES, *POLYPHONY)
    return {name: total[name].figures() for name in sorted(total, key=order.index)}


def _counts(
    names: tuple[str, ...],
    groups: NDArray[np.int64],
    label: NDArray[np.bool_],
    estimate: NDArray[np.bool_],
    bins: NDArray[np.int64],
    notes: NDArray[np.int64],
    found: NDArray[np.int64],
    matched: NDArray[np.int64],
) -> dict[str, Counts]:
    """groups, label, estimate, bins: (frames, PITCHES); the others: the group of each note."""
    cells = groups * (BINS + 1) + bins
    size = len(names) * (BINS + 1)
    sounding = np.bincount(cells[label], minlength=size).reshape(len(names), -1)
    silent = np.bincount(cells[~label], minlength=size).reshape(len(names), -1)

    def count(values: NDArray[np.int64]) -> list[int]:
        return [int(n) for n in np.bincount(values.ravel(), minlength=len(names))]

    columns = zip(
        names,
        count(notes),
        count(found),
        count(matched),
        count(groups[label & estimate]),
        count(groups[label]),
        count(groups[estimate]),
        sounding,
        silent,
        strict=True,
    )
    return {
        name: Counts(*rest) for name, *rest in columns if rest[0] or rest[1] or rest[4] or rest[5]
    }
