"""What the server says on the live protocol (PROTOCOL.md), one model a message."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.notes.events import Event, PedalEvent
from service.protocol.client_messages import Checkpoint
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import Mode


class _ServerMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seq: int = Field(default=0, ge=0)


class Limits(BaseModel):
    """What the server will take from this session."""

    max_message_bytes: int
    max_session_s: float
    idle_timeout_s: float
    max_buffered_ms: float


class Ready(_ServerMessage):
    type: Literal["ready"] = "ready"
    session_id: str
    model: str
    sample_rate_hz: float
    hop_samples: int
    frame_rate_hz: float
    mode: Mode
    lookahead_ms: float
    block_frames: int
    delay_ms: float
    median_delay_ms: float | None = None
    note_off_delay_ms: float
    replay_ms: float
    instruments: dict[str, int] | None = None
    checkpoint: Checkpoint
    limits: Limits


class NoteOn(_ServerMessage):
    type: Literal["note_on"] = "note_on"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    velocity: int = Field(ge=1, le=127)
    confidence: float = Field(ge=0, le=1)
    frame: int
    time_s: float
    instrument: str | None = None
    instrument_probability: float | None = Field(default=None, ge=0, le=1)


class NoteUpdate(_ServerMessage):
    """A note that sounds is played by another instrument than was told."""

    type: Literal["note_update"] = "note_update"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    instrument: str
    instrument_probability: float = Field(ge=0, le=1)


class NoteOff(_ServerMessage):
    type: Literal["note_off"] = "note_off"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    frame: int
    time_s: float


class Pedal(_ServerMessage):
    """The sustain pedal goes down or comes up."""

    type: Literal["pedal"] = "pedal"
    down: bool
    frame: int
    time_s: float


class Progress(_ServerMessage):
    type: Literal["progress"] = "progress"
    received_samples: int
    frames: int
    time_s: float
    behind_ms: float
    checkpoint: Checkpoint


class Frames(_ServerMessage):
    """Probabilities of frames, for a client that asked for them: bytes, frame by frame."""

    type: Literal["frames"] = "frames"
    frame: int
    count: int
    lowest_pitch: int
    pitches: int
    probabilities_base64: str


class Lagging(_ServerMessage):
    type: Literal["lagging"] = "lagging"
    behind_ms: float


class Draining(_ServerMessage):
    """The server is going down: what follows ends this session. A client that resumes elsewhere
    pays no heed to it."""

    type: Literal["draining"] = "draining"


class Flushed(_ServerMessage):
    type: Literal["flushed"] = "flushed"
    id: str
    frame: int


class Totals(BaseModel):
    """A session in numbers; samples are per channel, at the rate the client sent."""

    model_config = ConfigDict(from_attributes=True)

    notes: int
    frames: int
    audio_s: float
    received_samples: int
    dropped_samples: int


DoneReason = Literal["stop", "draining", "error"]


class Done(_ServerMessage):
    type: Literal["done"] = "done"
    reason: DoneReason
    totals: Totals
    midi_base64: str


class Error(_ServerMessage):
    type: Literal["error"] = "error"
    code: ErrorCode
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: ProtocolError) -> Error:
        return cls(code=error.code, message=error.message, retryable=error.retryable)


ServerMessage = (
    Ready
    | NoteOn
    | NoteUpdate
    | NoteOff
    | Pedal
    | Frames
    | Progress
    | Lagging
    | Draining
    | Flushed
    | Done
    | Error
)

SERVER_MESSAGES: tuple[type[BaseModel], ...] = (
    Ready,
    NoteOn,
    NoteUpdate,
    NoteOff,
    Pedal,
    Frames,
    Progress,
    Lagging,
    Draining,
    Flushed,
    Done,
    Error,
)


def event_message(event: Event) -> NoteOn | NoteUpdate | NoteOff | Pedal:
    """An event of the pipeline as a message."""
    # Microseconds are far below a sample; longer tails would be most of the message.
    time_s = round(event.time_s, 6)
    if isinstance(event, PedalEvent):
        return Pedal(down=event.down, frame=event.frame, time_s=time_s)
    if event.kind == "note_update":
        assert event.instrument is not None
        assert event.instrument_probability is not None
        return NoteUpdate(
            note_id=event.note_id,
            pitch=event.pitch,
            instrument=event.instrument,
            instrument_probability=event.instrument_probability,
        )
    if event.kind == "note_off":
        return NoteOff(note_id=event.note_id, pitch=event.pitch, frame=event.frame, time_s=time_s)
    return NoteOn(
        note_id=event.note_id,
        pitch=event.pitch,
        velocity=event.velocity,
        confidence=round(event.confidence, 4),
        frame=event.frame,
        time_s=time_s,
        instrument=event.instrument,
        instrument_probability=event.instrument_probability,
    )
