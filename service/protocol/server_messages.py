"""Server messages of the live protocol (PROTOCOL.md) and their parser."""

import base64
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from service.protocol.checkpoint import Checkpoint
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import Mix, Mode


class _ServerMessage(BaseModel):
    # A newer server may send more fields.
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    seq: int = Field(default=0, ge=0)


class Limits(BaseModel):
    """Limits of the server for a session."""

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
    """Corrected instrument of a note."""

    type: Literal["note_update"] = "note_update"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    instrument: str
    instrument_probability: float | None = Field(default=None, ge=0, le=1)


class NoteOff(_ServerMessage):
    type: Literal["note_off"] = "note_off"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    frame: int
    time_s: float


class NoteBend(_ServerMessage):
    """Pitch of a sounding note, in cents above ``pitch``, for each frame from ``frame`` on."""

    type: Literal["note_bend"] = "note_bend"
    note_id: int
    pitch: int = Field(ge=0, le=127)
    frame: int
    time_s: float
    cents: tuple[float, ...]


class Pedal(_ServerMessage):
    type: Literal["pedal"] = "pedal"
    down: bool
    frame: int
    time_s: float


class Beat(_ServerMessage):
    """A beat. ``place`` is its position in the bar, from 0."""

    type: Literal["beat"] = "beat"
    time_s: float
    place: int = Field(ge=0)
    beats_per_bar: int = Field(ge=1)
    subdivision: Literal[2, 3]
    confidence: float = Field(ge=0, le=1)


class Progress(_ServerMessage):
    type: Literal["progress"] = "progress"
    received_samples: int
    frames: int
    time_s: float
    behind_ms: float
    checkpoint: Checkpoint


class Frames(_ServerMessage):
    """Frame probabilities, if the client requested them. ``probabilities_base64`` has one byte per
    frame and pitch, frame by frame; 255 means 1."""

    type: Literal["frames"] = "frames"
    frame: int
    count: int
    lowest_pitch: int
    pitches: int
    probabilities_base64: str


class Draining(_ServerMessage):
    """The server is shutting down. The last messages of the session follow."""

    type: Literal["draining"] = "draining"


class Flushed(_ServerMessage):
    type: Literal["flushed"] = "flushed"
    id: str


class InputWarning(_ServerMessage):
    """The audio may not have the format that the client announced, or arrives faster than an
    overloaded server can transcribe it. The session continues."""

    type: Literal["warning"] = "warning"
    code: Literal["unlikely_audio", "overloaded"]
    message: str


class Totals(BaseModel):
    """Counts of a performance or recording. Samples are counted per channel, at the input rate.
    ``dropped_samples`` counts an invalid sample and the samples after it in the same chunk."""

    notes: int
    frames: int
    audio_s: float
    received_samples: int
    dropped_samples: int
    mix: Mix = Mix.MEAN


DoneReason = Literal["stop", "draining", "error"]


class Done(_ServerMessage):
    type: Literal["done"] = "done"
    reason: DoneReason
    totals: Totals
    midi_base64: str

    @property
    def midi(self) -> bytes:
        """A Standard MIDI File: the notes that ended in this session or, in the client's merged
        ``done``, in the performance."""
        return base64.b64decode(self.midi_base64)


class Error(_ServerMessage):
    type: Literal["error"] = "error"
    code: ErrorCode | str  # a newer server may have more codes
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: ProtocolError) -> Self:
        return cls(code=error.code, message=error.message, retryable=error.code.retryable)


EventMessage = NoteOn | NoteUpdate | NoteOff | NoteBend | Pedal
SessionEvent = EventMessage | Beat | Progress | InputWarning
ServerMessage = Ready | SessionEvent | Frames | Draining | Flushed | Done | Error

_EVENTS = {kind.model_fields["type"].default: kind for kind in get_args(EventMessage)}
_SERVER: TypeAdapter[ServerMessage] = TypeAdapter(
    Annotated[ServerMessage, Field(discriminator="type")]
)


def event_message(event: Any) -> EventMessage:
    """Return the message of an event of ``service.notes.events``."""
    message: EventMessage = _EVENTS[event.kind].model_validate(event, from_attributes=True)
    return message


class Unknown(_ServerMessage):
    """Message of a newer protocol. Clients ignore it."""

    type: str


def parse_server_message(text: str | bytes) -> ServerMessage | Unknown:
    """Parse a text message of the server. Raises `pydantic.ValidationError`."""
    try:
        return _SERVER.validate_json(text, strict=True)
    except ValidationError as error:
        if error.errors(include_url=False)[0]["type"] != "union_tag_invalid":
            raise
        return Unknown.model_validate_json(text, strict=True)
