"""Results of the pipeline: events of notes and of the pedal, and completed notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UPDATE_S = 0.5  # time after a note's onset at which its instrument may change


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """Start or end of a note, or a change of its instrument while it sounds.

    Attributes:
        kind: every note_on has exactly one note_off. At most one note_update comes in between, and
            repeats the note_on with another instrument.
        note_id: number of the note in its performance, from 0.
        pitch, velocity: MIDI note number, 0 to 127, and velocity, 1 to 127.
        confidence: the model's probability of this note, 0 to 1.
        frame: index of the frame. Frame f is at sample f * ``HOP`` at the model's rate.
        time_s: position in the audio. It differs from the frame's position by less than a frame.
        instrument: one of ``model.config.INSTRUMENTS``, or None without instrument heads.
        instrument_probability: 0 to 1. Relative to the instruments that the stream considers.
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
    """Press or release of the sustain pedal."""

    down: bool
    frame: int
    time_s: float
    kind: Literal["pedal"] = "pedal"


@dataclass(frozen=True, slots=True)
class BendEvent:
    """Pitch of a sounding note in successive frames from ``frame`` on. ``cents``: difference from
    ``pitch`` with A4 at 440 Hz, or at the option ``tuning_hz``."""

    note_id: int
    pitch: int
    frame: int
    time_s: float
    cents: tuple[float, ...]
    kind: Literal["note_bend"] = "note_bend"


Event = NoteEvent | PedalEvent | BendEvent


def is_optional_event(event: Event) -> bool:
    """Return True for events that are sent only if the client set the option ``updates``."""
    return event.kind in ("note_update", "pedal")


@dataclass(frozen=True, slots=True)
class Note:
    """Completed note, with its latest instrument."""

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
    """Cents above the pitch, one value per frame from ``onset_frame`` on. The last frames may be
    missing. None if no bends were reported, or an earlier session reported the first of them."""


@dataclass(frozen=True, slots=True)
class PedalPress:
    """Period in which the sustain pedal is down, in seconds."""

    onset_s: float
    offset_s: float
