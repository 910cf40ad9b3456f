"""Results of the pipeline: beginnings and ends of notes, whole notes, and the pedal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UPDATE_S = 0.5  # from an onset to the moment when its note may get another name


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """A note beginning, ending, or changing its name while it sounds.

    Attributes:
        kind: ``"note_on"`` or ``"note_off"``; every note_on has exactly one note_off. Between them
            may come one ``"note_update"``: the note_on again, with another instrument.
        note_id: counts the notes of a session from 0; a note_off repeats that of its note_on.
        pitch: MIDI note number, 0 to 127.
        velocity: MIDI velocity, 1 to 127 (a note_off repeats that of its note_on).
        confidence: 0 to 1, the model's probability of this note (repeated likewise).
        frame: index of the frame, ``HOP`` samples of the model's rate apart.
        time_s: seconds of the sent audio; within a frame of ``frame``.
        instrument: one of ``model.config.INSTRUMENTS``; None if the network has no such heads.
        instrument_probability: 0 to 1, of that instrument among those considered.
    """

    kind: Literal["note_on", "note_off", "note_update"]
    note_id: int
    pitch: int
    velocity: int
    confidence: float
    frame: int
    time_s: float
    instrument: str | None = None
    instrument_probability: float | None = None


@dataclass(frozen=True, slots=True)
class PedalEvent:
    """The sustain pedal goes down or comes up, at ``time_s`` seconds of the sent audio."""

    down: bool
    frame: int
    time_s: float
    kind: Literal["pedal"] = "pedal"


@dataclass(frozen=True, slots=True)
class BendEvent:
    """The pitch of a sounding note in successive frames, the first of them ``frame``. cents: above
    the pitch at A4 = 440 Hz, or at the ``tuning_hz`` that was given; one per frame."""

    note_id: int
    pitch: int
    frame: int
    time_s: float
    cents: tuple[float, ...]
    kind: Literal["note_bend"] = "note_bend"


Event = NoteEvent | PedalEvent | BendEvent


def is_optional_event(event: Event) -> bool:
    """Whether the event is only for clients that asked for updates: corrections and the pedal."""
    return event.kind in ("note_update", "pedal")


@dataclass(frozen=True, slots=True)
class Note:
    """A finished note: its note_on and its note_off together. Times in seconds. The instrument is
    the latest one of the note."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    onset_frame: int
    offset_frame: int
    onset_s: float
    offset_s: float
    instrument: str | None = None
    instrument_probability: float | None = None
    bends: tuple[float, ...] | None = None
    """Cents above the pitch from ``onset_frame`` on, one per frame, if asked for."""


@dataclass(frozen=True, slots=True)
class PedalPress:
    """The sustain pedal is down from ``onset_s`` to ``offset_s``, in seconds."""

    onset_s: float
    offset_s: float
