"""What the pipeline says: notes that begin, notes that end, and whole notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """One note beginning or ending.

    Attributes:
        kind: ``"note_on"`` or ``"note_off"``; every note_on has exactly one note_off.
        note_id: counts the notes of a session from 0; a note_off repeats that of its note_on.
        pitch: MIDI note number, 0 to 127.
        velocity: MIDI velocity, 1 to 127 (a note_off repeats that of its note_on).
        confidence: 0 to 1, the model's probability of this note (repeated likewise).
        frame: index of the frame, ``HOP`` samples of the model's rate apart.
        time_s: seconds of the sent audio; within half a frame of ``frame``.
    """

    kind: Literal["note_on", "note_off"]
    note_id: int
    pitch: int
    velocity: int
    confidence: float
    frame: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Note:
    """A finished note: its note_on and its note_off together. Times in seconds."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    onset_frame: int
    offset_frame: int
    onset_s: float
    offset_s: float

    @classmethod
    def of(cls, on: NoteEvent, off: NoteEvent) -> Note:
        """The note that ``on`` began and ``off`` ended."""
        return cls(
            note_id=on.note_id,
            pitch=on.pitch,
            velocity=on.velocity,
            confidence=on.confidence,
            onset_frame=on.frame,
            offset_frame=off.frame,
            onset_s=on.time_s,
            offset_s=off.time_s,
        )
