"""The note tracker over the probabilities of a whole piece."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.config import NOTE_HEADS
from service.notes.score import Score
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings
from training.music.metrics import NoteList, estimated_notes

LOOKAHEADS_MS = (100.0, 200.0)
"""Look-aheads at which settings are judged."""


def note_heads(heads: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The heads that the tracker reads, and their rows."""
    rows = [row for row, head in enumerate(heads) if head in NOTE_HEADS]
    return tuple(heads[row] for row in rows), rows


def tracked(
    settings: TrackerSettings,
    probabilities: NDArray[np.float32],
    frame_s: float,
    heads: tuple[str, ...],
) -> NoteList:
    """Notes of [heads, frames, PITCHES]."""
    tracker = NoteTracker(settings, frame_s, heads)
    score = Score()
    score.add(tracker.push(0, probabilities))
    score.add(tracker.finish(probabilities.shape[1]))
    return estimated_notes(score.notes)
