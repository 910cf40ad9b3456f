"""Client messages of the live protocol (PROTOCOL.md) and their parsers."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from model.config import INSTRUMENTS
from model.validation import format_error
from service.protocol.checkpoint import Checkpoint
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import (
    MAX_CHANNELS,
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    BlockFrames,
    Encoding,
    Instrument,
    LookaheadMs,
    Mode,
    StreamOptions,
    TuningHz,
)

MAX_ERRORS = 100  # maximum number of validation errors to examine, because each takes time


class _ClientMessage(BaseModel):
    # Reject unknown fields, so that a misspelt option does not go unnoticed.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _split(value: object) -> object:
    """Split a string, or each string of a list, at commas. Return other values unchanged."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        return value
    return tuple(name.strip() for text in texts for name in text.split(","))


_Names = Annotated[
    tuple[Instrument, ...],
    Field(max_length=len(INSTRUMENTS), fail_fast=True),
    BeforeValidator(_split),
]


class RequestOptions(_ClientMessage):
    """Options of a transcription. None means the server's default."""

    mode: Mode | None = None
    lookahead_ms: LookaheadMs | None = None
    block_frames: BlockFrames | None = None
    model: str | None = Field(default=None, max_length=128)
    instruments: _Names | None = None
    tuning_hz: TuningHz | None = None
    bends: bool = False
    updates: bool = False

    def options(self, defaults: StreamOptions) -> StreamOptions:
        """Return ``defaults``, overridden by the options that are set. If the client sets another
        mode without ``block_frames``, use the default ``block_frames`` of that mode. Raises
        ProtocolError if the options conflict."""
        names = set(StreamOptions.__dataclass_fields__)
        changes = self.model_dump(include=names, exclude_none=True)
        if self.mode not in (None, defaults.mode):
            changes.setdefault("block_frames", None)
        try:
            return replace(defaults, **changes)
        except ValueError as error:
            raise ProtocolError(ErrorCode.BAD_START, str(error)) from None


class Start(RequestOptions):
    """First message of a session: audio format and options."""

    type: Literal["start"] = "start"
    encoding: Encoding
    sample_rate: int = Field(ge=MIN_SAMPLE_RATE_HZ, le=MAX_SAMPLE_RATE_HZ)
    channels: int = Field(default=1, ge=1, le=MAX_CHANNELS)
    frames: bool = False
    beats: bool = False
    resume: Checkpoint | None = None

    def audio(self) -> AudioFormat:
        return AudioFormat(
            encoding=self.encoding, sample_rate_hz=self.sample_rate, channels=self.channels
        )


class Stop(_ClientMessage):
    """The audio ends. The server transcribes the rest and sends `done`."""

    type: Literal["stop"] = "stop"


class Keepalive(_ClientMessage):
    """Resets the idle timeout while the client has no audio."""

    type: Literal["keepalive"] = "keepalive"


class Flush(_ClientMessage):
    """Requests `flushed` with the same ID once all earlier audio is transcribed."""

    type: Literal["flush"] = "flush"
    id: str = Field(max_length=128)


ClientMessage = Start | Stop | Keepalive | Flush

_CLIENT: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def to_json(message: ClientMessage) -> str:
    """Return a message as JSON, without default values."""
    fields = message.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({"type": message.type, **fields})


def parse_message(text: str) -> ClientMessage:
    """Parse a text message of a client. Raises ProtocolError."""
    try:
        return _CLIENT.validate_json(text)
    except ValidationError as error:
        # Only unknown fields cause so many errors, so the message is an object with a valid type.
        starting = error.error_count() > MAX_ERRORS and from_json(text)["type"] == "start"
        raise protocol_error(error, starting) from None


def parse_query(parameters: Iterable[tuple[str, str]]) -> Start | None:
    """Parse a `start` that the query of the websocket's URL contains. Return None if the query is
    empty. Raises ProtocolError."""
    fields = dict(parameters)
    if not fields:
        return None
    try:
        return Start.model_validate_strings(fields)
    except ValidationError as error:
        raise protocol_error(error, starting=True) from None


def protocol_error(error: ValidationError, starting: bool = False) -> ProtocolError:
    """Convert a validation error of pydantic to the error that the client receives. starting: True
    if pydantic validated a ``Start``, or if a ``start`` has more than MAX_ERRORS errors."""
    if error.error_count() > MAX_ERRORS:
        code = ErrorCode.BAD_START if starting else ErrorCode.BAD_MESSAGE
        return ProtocolError(code, f"the message has {error.error_count()} errors")
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    if not starting:  # the path in a union starts with the type of the message
        starting, path = path[:1] == ["start"], path[1:]
    code = ErrorCode.BAD_START if starting else ErrorCode.BAD_MESSAGE
    if starting and path[:1] == ["resume"]:
        code = ErrorCode.BAD_RESUME
    # The message may quote the client's text, so its length is limited.
    return ProtocolError(code, format_error({**first, "loc": path})[:300])
