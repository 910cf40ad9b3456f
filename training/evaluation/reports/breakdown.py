"""Scores by octave and by polyphony, pooled over recordings."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from training.music.metrics import NoteList

BINS = 1000  # of probability: average precision is exact to about 1/BINS
POLYPHONY = ("0", "1", "2", "3", "4", "5 to 6", "7 and more")
_POLYPHONY_GROUP = np.array([0, 1, 2, 3, 4, 5, 5, *[6] * (PITCHES - 6)])  # of 0 to 128 notes
OCTAVES = tuple(f"C{octave} to B{octave}" for octave in range(-1, 9)) + ("C9 to G9",)


class Counts(NamedTuple):
    """Frames and notes by group: [groups] unless stated otherwise. They add up over recordings."""

    notes: NDArray[np.int64]
    """Notes of the labels."""
    estimated: NDArray[np.int64]
    matched: NDArray[np.int64]
    """Notes found, by onset and pitch."""
    hits: NDArray[np.int64]
    """Frames x pitches that sound in both labels and notes found; then in the notes found."""
    estimated_frames: NDArray[np.int64]
    sounding: NDArray[np.int64]
    """[groups, BINS + 1]: frames x pitches that sound in the labels, by probability."""
    silent: NDArray[np.int64]


def breakdowns(
    reference: NoteList,
    estimated: NoteList,
    matched: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    frame_s: float,
) -> tuple[Counts, Counts | None]:
    """Counts of one recording by OCTAVES, and by POLYPHONY, the number of notes that sound in the
    labels: at the frame, or at the note's onset (that note included); None without frames. A
    matched note counts where its label does.

    matched: ``metrics.matched_onsets``; probabilities: (frames, PITCHES).
    """
    frames = len(probabilities)
    label, estimate = (notes.roll(frames, frame_s) for notes in (reference, estimated))
    bins = np.clip(probabilities * BINS, 0, BINS).astype(np.int64)
    octave = np.broadcast_to(np.arange(PITCHES) // 12, label.shape)
    notes, found = reference.pitch // 12, estimated.pitch // 12
    rolls = label, estimate, bins
    octaves = _counts(len(OCTAVES), octave, *rolls, notes, found, notes[matched[:, 0]])
    if not frames:
        return octaves, None
    group = _POLYPHONY_GROUP[label.sum(axis=1)]

    def at_onset(notes: NoteList) -> NDArray[np.int64]:
        at = np.ceil(notes.onset_s / frame_s - 1e-9).astype(int)
        return np.asarray(group[np.minimum(at, frames - 1)])

    notes, found = at_onset(reference), at_onset(estimated)
    found[matched[:, 1]] = notes[matched[:, 0]]
    groups = np.broadcast_to(group[:, None], label.shape)
    polyphony = _counts(len(POLYPHONY), groups, *rolls, notes, found, notes[matched[:, 0]])
    return octaves, polyphony


def pooled_figures(
    names: tuple[str, ...], recordings: Iterable[Counts | None]
) -> dict[str, dict[str, Any]]:
    """The figures of all recordings together, of the groups that have notes: OCTAVES or POLYPHONY,
    as the counts do."""
    known = [counts for counts in recordings if counts is not None]
    if not known:
        return {}
    total = [np.sum(column, axis=0) for column in zip(*known, strict=True)]
    groups = zip(names, *total, strict=True)
    return {name: _figures(Counts(*rest)) for name, *rest in groups if any(map(np.any, rest[:6]))}


def _figures(group: Counts) -> dict[str, float | int | None]:
    """``notes`` and the scores of one group; None where there is nothing to score."""
    notes, estimated, matched, hits, estimated_frames = (int(count) for count in group[:5])
    label_frames = int(group.sounding.sum())
    frames = label_frames + estimated_frames
    right = np.cumsum(group.sounding[::-1])
    precision = right / np.maximum(1, right + np.cumsum(group.silent[::-1]))
    area = float(np.sum(group.sounding[::-1] * precision))
    return {
        "notes": notes,
        "estimated_notes": estimated,
        "frame_ap": area / label_frames if label_frames else None,
        "frame_f1": 2 * hits / frames if frames else None,
        "onset_recall": matched / notes if notes else None,
        "onset_precision": matched / estimated if estimated else None,
        "onset_f1": 2 * matched / (notes + estimated) if notes + estimated else None,
    }


def _counts(
    size: int,
    groups: NDArray[np.int64],
    label: NDArray[np.bool_],
    estimate: NDArray[np.bool_],
    bins: NDArray[np.int64],
    notes: NDArray[np.int64],
    found: NDArray[np.int64],
    matched: NDArray[np.int64],
) -> Counts:
    """groups, label, estimate, bins: (frames, PITCHES); the others: the group of each note."""
    cells = groups * (BINS + 1) + bins
    in_groups = (notes, found, matched, groups[label & estimate], groups[estimate])
    return Counts(
        *(np.bincount(values, minlength=size) for values in in_groups),
        *(
            np.bincount(cells[where], minlength=size * (BINS + 1)).reshape(size, -1)
            for where in (label, ~label)
        ),
    )
