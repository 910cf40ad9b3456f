"""Messages of the client in the live protocol (PROTOCOL.md), and their parsing."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from model.config import INSTRUMENTS
from model.validation import format_error
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import (
    MAX_CHANNELS,
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    BlockFrames,
    Count,
    Encoding,
    Instrument,
    LookaheadMs,
    Mode,
    StreamOptions,
    TuningHz,
)


class _ClientMessage(BaseModel):
    # A misspelt field is an error: if ignored, a client would wonder why its setting has no effect.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _split(value: object) -> object:
    """Splits names that a query gives comma-separated."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        return value
    return tuple(name.strip() for v in values for name in v.split(","))


_Names = Annotated[
    tuple[Instrument, ...], Field(max_length=len(INSTRUMENTS)), BeforeValidator(_split)
]


class RequestOptions(_ClientMessage):
    """Options of a transcription; the server chooses those left out."""

    mode: Mode | None = None
    lookahead_ms: LookaheadMs | None = None
    block_frames: BlockFrames | None = None
    model: str | None = Field(default=None, max_length=128)
    instruments: _Names | None = None
    tuning_hz: TuningHz | None = None
    bends: bool = False
    updates: bool = False

    def options(self, defaults: StreamOptions) -> StreamOptions:
        """The choices made, over `defaults`; another mode comes with its own block.

        Raises ProtocolError if they do not go together.
        """
        of_stream = set(StreamOptions.__dataclass_fields__)
        made = self.model_dump(include=of_stream, exclude_none=True)
        if self.mode not in (None, defaults.mode):
            made.setdefault("block_frames", None)
        try:
            return replace(defaults, **made)
        except ValueError as error:
            raise ProtocolError(ErrorCode.BAD_START, str(error)) from None


class _State(_ClientMessage):
    # Passed from server to server, possibly with fields of a newer version.
    model_config = ConfigDict(extra="allow")


class SoundingNote(_State):
    """A note that has begun and not ended."""

    note_id: Count
    pitch: int = Field(ge=0, le=127)
    velocity: int = Field(ge=1, le=127)
    confidence: float = Field(ge=0, le=1)
    frame: Count
    time_s: float = Field(ge=0)
    instrument: Instrument | None = None
    instrument_probability: float | None = Field(default=None, ge=0, le=1)


class Checkpoint(_State):
    """A resume point: any server with the same model can continue from it. Only servers read the
    rest of its state (``service.notes.resume``)."""

    session_id: str = Field(pattern=r"^[0-9a-f]{1,32}$")
    from_sample: Count
    frames: Count
    notes: Count
    sounding: tuple[SoundingNote, ...] = Field(max_length=128)


class Resume(Checkpoint):
    """A checkpoint from the server, and the number of events received after it."""

    known_events: Count = 0


class Start(RequestOptions):
    """The first message of a session: format of the audio, and options."""

    type: Literal["start"] = "start"
    encoding: Encoding
    sample_rate: int = Field(ge=MIN_SAMPLE_RATE_HZ, le=MAX_SAMPLE_RATE_HZ)
    channels: int = Field(default=1, ge=1, le=MAX_CHANNELS)
    frames: bool = False
    beats: bool = False
    resume: Resume | None = None

    def audio(self) -> AudioFormat:
        return AudioFormat(
            encoding=self.encoding, sample_rate_hz=self.sample_rate, channels=self.channels
        )

    @property
    def pcm_frame_bytes(self) -> int:
        return self.encoding.sample_bytes * self.channels


class Stop(_ClientMessage):
    """The end of the audio: transcribe the rest, then send `done`."""

    type: Literal["stop"] = "stop"


class Keepalive(_ClientMessage):
    """Nothing to send, but the client is alive."""

    type: Literal["keepalive"] = "keepalive"


class Flush(_ClientMessage):
    """Answered by `flushed` with the same id once all earlier audio is transcribed."""

    type: Literal["flush"] = "flush"
    id: str = Field(max_length=128)


ClientMessage = Start | Stop | Keepalive | Flush

_CLIENT: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def to_json(message: ClientMessage) -> str:
    """A message as JSON, without fields left to the server."""
    fields = message.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({"type": message.type, **fields})


def parse_message(text: str) -> ClientMessage:
    """Parses a text message of a client; raises `ProtocolError`."""
    try:
        return _CLIENT.validate_json(text)
    except ValidationError as error:
        raise protocol_error(error) from None


def parse_query(parameters: Iterable[tuple[str, str]]) -> Start | None:
    """Parses a start from the query of the websocket's address: the fields of `Start` except
    `resume`. None if there is no query; raises `ProtocolError`."""
    fields = dict(parameters)
    if not fields:
        return None
    try:
        return Start.model_validate_strings(fields)
    except ValidationError as error:
        raise protocol_error(error, starting=True) from None


def protocol_error(error: ValidationError, starting: bool = False) -> ProtocolError:
    """A code and a sentence from the first error of pydantic; ``starting``: of a ``Start``."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    if not starting:
        # The discriminated union puts the message's type in front of the field's name.
        starting, path = path[:1] == ["start"], path[1:]
    code = ErrorCode.BAD_START if starting else ErrorCode.BAD_MESSAGE
    if starting and path[:1] == ["resume"]:
        code = ErrorCode.BAD_RESUME
    # It may quote the client's own text: keep the answer short.
    return ProtocolError(code, format_error({**first, "loc": path})[:300])
