"""Checkpoint of a performance, from which another session can resume it.

The state of a session depends only on its last seconds of audio and on a small `Checkpoint`, which
contains, for example, the sounding notes. The client sends both to the new session, which restores
the state of the old session (``service.stream.resume``).

The server stores nothing, so a client may resume late, and on another replica. Clients use some
fields of a checkpoint, and return all others unchanged, including fields that a newer server adds.
Add new fields to `Checkpoint` itself, because clients drop unknown fields of its parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from model.config import PITCHES
from service.protocol.options import Count, Mix

_Pitch = Annotated[int, Field(ge=0, lt=PITCHES)]
# Clients accept the instruments of a newer server.
_Instrument = Annotated[str, Field(max_length=64)]
_Probability = Annotated[float, Field(ge=0, le=1)]
_Sum = Annotated[float, Field(ge=-100, le=100)]
_Weight = Annotated[float, Field(gt=0, le=1001)]  # maximum: 1 / (1 - MAX_KEPT), plus rounding
# Fail fast, because each error takes time.
_PER_PITCH = Field(max_length=PITCHES, fail_fast=True)


class _Part:
    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="ignore", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class NoteEvent(_Part):
    """Start or end of a note, or a change of its instrument while it sounds.

    Attributes:
        kind: every note_on has exactly one note_off. At most one note_update comes in between, and
            repeats the note_on with another instrument. At the end of the audio, note_updates
            also correct notes that have ended. The notes of a checkpoint are note_ons.
        note_id: number of the note in its performance, from 0.
        pitch, velocity: MIDI note number, 0 to 127, and velocity, 1 to 127.
        confidence: the model's probability of this note, 0 to 1.
        frame: index of the frame. Frame f is at sample f * ``HOP`` at the model's rate.
        time_s: position in the audio. It differs from the frame's position by less than a frame.
        instrument: one of ``model.config.INSTRUMENTS``, or None without instrument heads.
        instrument_probability: 0 to 1. Relative to the instruments that the stream considers.
    """

    kind: Annotated[Literal["note_on", "note_off", "note_update"], Field(exclude=True)]
    note_id: Count
    pitch: _Pitch
    velocity: Annotated[int, Field(ge=1, le=127)]
    confidence: _Probability
    frame: Count
    time_s: Annotated[float, Field(ge=0)]
    instrument: _Instrument | None = None
    instrument_probability: _Probability | None = None


def _note_on(note: object) -> object:
    return {**note, "kind": "note_on"} if isinstance(note, dict) else note


@dataclass(frozen=True, slots=True)
class InstrumentPrior(_Part):
    """Belief about the instruments (``service.notes.instrument_classifier``)."""

    weights: Annotated[Mapping[_Instrument, _Weight], _PER_PITCH] = field(default_factory=dict)
    """Numbers of recent notes, above 0, by instrument."""
    frame: Count = 0  # frame of the latest onset or offset


@dataclass(frozen=True, slots=True)
class Dynamics(_Part):
    """Loudness of a performance, to which velocities are relative (``service.notes.dynamics``)."""

    level: Annotated[float, Field(ge=-20, le=0)] = 0.0
    """Mean logarithm of the velocity head's output for the recent notes."""
    notes: Annotated[float, Field(ge=0, le=101)] = 0.0  # number of recent notes


@dataclass(frozen=True, slots=True)
class Tuning(_Part):
    """Tuning estimate at one moment (``service.audio.tuning``)."""

    along: _Sum = 0.0  # real part of the leaky sum of the blocks' vectors
    across: _Sum = 0.0  # imaginary part of this sum
    blocks: Annotated[float, Field(ge=0, le=100)] = 0.0  # leaky count of blocks with a vector
    shift: Annotated[int, Field(ge=-2, le=2)] = 0  # bins by which the filters are shifted upwards


@dataclass(frozen=True, slots=True)
class Curve(_Part):
    """State of a note's pitch curve (``service.notes.bends``): first unreported frame, and cents in
    the frame before it."""

    frame: Count
    cents: Annotated[float, Field(ge=-300, le=300)] = 0.0


class Checkpoint(BaseModel):
    """State from which any server with the same model can resume a performance."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    session_id: str = Field(pattern=r"^[0-9a-f]{1,32}$")  # ID of the performance
    from_sample: Count  # first sample to send again, per channel, at the input rate
    frames: Count  # number of frames whose events the client has
    notes: Count  # number of notes that started in these frames
    sounding: Annotated[tuple[Annotated[NoteEvent, BeforeValidator(_note_on)], ...], _PER_PITCH]
    """``note_on`` of each sounding note, with its latest instrument."""
    known_events: Count = Field(default=0, exclude_if=lambda count: not count)
    """In `start`, the number of events that the client received after the checkpoint."""
    belief: InstrumentPrior = Field(
        default=InstrumentPrior(), exclude_if=lambda belief: not belief.weights
    )
    dynamics: Dynamics = Field(default=Dynamics(), exclude_if=lambda dynamics: not dynamics.notes)
    pedal: bool = False  # True if the sustain pedal is down
    tuning: Tuning = Field(default=Tuning(), exclude_if=lambda tuning: not tuning.blocks)
    """Tuning estimate at the start of the audio to send again."""
    curves: Annotated[Mapping[Count, Curve], _PER_PITCH] = {}
    """Pitch curves of the sounding notes by ID, if bends were requested."""
    free: Annotated[Mapping[_Pitch, Count], _PER_PITCH] = {}
    """In anytime mode, the ``earliest_onset_frames`` of the tracker."""
    mix: Mix = Mix.MEAN  # mix of two channels at ``from_sample``

    @classmethod
    def start(cls, session_id: str = "0") -> Self:
        """Return the checkpoint at the start of a performance."""
        return cls(session_id=session_id, from_sample=0, frames=0, notes=0, sounding=())

    def known_state(self) -> Self:
        """Return the checkpoint without ``known_events`` and unknown fields."""
        return self.model_validate(self.model_dump(exclude={"known_events"}), extra="ignore")

    @model_validator(mode="after")
    def _check_sounding(self) -> Self:
        for name in ("pitch", "note_id"):
            if len({getattr(note, name) for note in self.sounding}) < len(self.sounding):
                raise ValueError(f"two sounding notes have the same {name}")
        for note in self.sounding:
            if note.note_id >= self.notes or note.frame >= self.frames:
                raise ValueError(
                    f"note {note.note_id} of frame {note.frame} is not among the {self.notes} notes"
                    f" in the {self.frames} frames before the checkpoint"
                )
        return self
