"""Results of the pipeline: events of notes and of the pedal, and completed notes."""

from dataclasses import dataclass
from typing import Literal

from service.protocol.checkpoint import NoteEvent as NoteEvent  # a part of checkpoints

UPDATE_S = 0.5  # time after a note's onset at which its instrument may change


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
