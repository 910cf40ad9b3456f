"""Scores by octave and by polyphony, pooled over recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class EvaluatedRecording:
    """The labels and the transcription of a recording.

    Attributes:
        reference: the labels.
        estimated: the notes found.
        matched: ``metrics.matched_onsets`` of the two.
        probabilities: (frames, PITCHES).
        frame_s: from one frame to the next.
    """

    reference: NoteList
    estimated: NoteList
    matched: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    frame_s: float

    def rolls(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
        """Labels, notes found, and the bins of the probabilities; all (frames, PITCHES)."""
        frames = len(self.probabilities)
        label = self.reference.roll(frames, self.frame_s)
        estimate = self.estimated.roll(frames, self.frame_s)
        bins = np.clip(self.probabilities * BINS, 0, BINS).astype(np.int64)
        return label, estimate, bins


def by_octave(recording: EvaluatedRecording) -> dict[str, Counts]:
    """Counts of one recording for the octaves that its labels or notes touch."""
    groups = np.broadcast_to(np.arange(PITCHES) // 12, recording.probabilities.shape)
    notes, found = recording.reference.pitch // 12, recording.estimated.pitch // 12
    return _counts(
        OCTAVES, groups, *recording.rolls(), notes, found, notes[recording.matched[:, 0]]
    )


def by_polyphony(recording: EvaluatedRecording) -> dict[str, Counts]:
    """Counts of one recording by the number of notes that sound in the labels: at the frame, or
    at the note's onset (that note included). A matched note counts where its label does."""
    rolls = label, _, _ = recording.rolls()
    group = _POLYPHONY_GROUP[label.sum(axis=1)]
    if not len(group):
        return {}

    def at_onset(notes: NoteList) -> NDArray[np.int64]:
        frames = np.ceil(notes.onset_s / recording.frame_s - 1e-9).astype(int)
        return np.asarray(group[np.minimum(frames, len(group) - 1)])

    matched = recording.matched
    notes, found = at_onset(recording.reference), at_onset(recording.estimated)
    found[matched[:, 1]] = notes[matched[:, 0]]
    groups = np.broadcast_to(group[:, None], recording.probabilities.shape)
    return _counts(POLYPHONY, groups, *rolls, notes, found, notes[matched[:, 0]])


def pooled(recordings: Iterable[Mapping[str, Counts]]) -> dict[str, Counts]:
    """The sum over recordings, with groups in order."""
    total: dict[str, Counts] = {}
    for recording in recordings:
        for name, counts in recording.items():
            total.setdefault(name, Counts()).add(counts)
    order = (*OCTAVES, *POLYPHONY)
    return {name: total[name] for name in sorted(total, key=order.index)}


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
