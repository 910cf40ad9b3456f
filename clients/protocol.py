"""The messages of the live websocket protocol, as a client sends and reads them.

The full description is the service's PROTOCOL.md. Fields that this client does not know are
ignored and so are whole messages of an unknown type: a newer server may say more.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints
from urllib.parse import urlsplit, urlunsplit

WEBSOCKET_PATH = "/ws/transcribe"

SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4}
MIN_SAMPLE_RATE_HZ = 8_000
MAX_SAMPLE_RATE_HZ = 192_000
MAX_CHANNELS = 2


class ProtocolError(Exception):
    """The server sent something that is not in the protocol."""


# -- client to server -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """What the audio is and how it is to be transcribed; None leaves the choice to the server.

    Attributes:
        encoding: ``pcm_s16le`` or ``pcm_f32le`` (full scale 1.0).
        sample_rate: of the audio that will be sent, 8,000 to 192,000 Hz.
        channels: 1, or 2 interleaved.
        mode: ``block`` or ``centre``.
        lookahead_ms: future audio that a frame may wait for.
        block_frames: frames that are emitted together.
        model: name of the weights.

    Raises:
        ValueError: the server would refuse the audio format.
    """

    encoding: str
    sample_rate: int
    channels: int = 1
    mode: str | None = None
    lookahead_ms: float | None = None
    block_frames: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        if self.encoding not in SAMPLE_BYTES:
            raise ValueError(f"encoding is one of {', '.join(SAMPLE_BYTES)}, not {self.encoding!r}")
        if not MIN_SAMPLE_RATE_HZ <= self.sample_rate <= MAX_SAMPLE_RATE_HZ:
            raise ValueError(
                f"the service takes {MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ} Hz, "
                f"not {self.sample_rate}"
            )
        if not 1 <= self.channels <= MAX_CHANNELS:
            raise ValueError(f"the service takes 1 or 2 channels, not {self.channels}")

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return SAMPLE_BYTES[self.encoding] * self.channels

    def to_json(self, resume: Mapping[str, Any] | None = None) -> str:
        """The ``start`` message; ``resume`` is a checkpoint with its ``known_events``."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given["resume"] = resume
        chosen = {name: value for name, value in given.items() if value is not None}
        return json.dumps({"type": "start", **chosen})


STOP = json.dumps({"type": "stop"})
KEEPALIVE = json.dumps({"type": "keepalive"})


def flush_message(flush_id: str) -> str:
    """A marker; ``flushed`` with this id comes back when the audio before it is transcribed."""
    return json.dumps({"type": "flush", "id": flush_id})


def websocket_url(url: str) -> str:
    """The address of the live endpoint from any address of the service.

    ``http://host:8000``, ``ws://host:8000/`` and ``host:8000`` all mean
    ``ws://host:8000/ws/transcribe``; a path or a query that is given stays.

    Raises:
        ValueError: no host, or a scheme other than ws, wss, http, https.
    """
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"not an address of the service: {url!r}")
    path = parts.path if parts.path not in ("", "/") else WEBSOCKET_PATH
    return urlunsplit((schemes[parts.scheme], parts.netloc, path, parts.query, ""))


# -- server to client -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A moment of a performance from which any server can go on.

    Attributes:
        from_sample: first sample, a channel, that must be sent again.
        frames: so many frames have been told of.
        sounding: numbers of the notes that sound.
        raw: the whole, as the server gave it and wants it back.
    """

    from_sample: int
    frames: int
    sounding: frozenset[int]
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, value: Any) -> Checkpoint:
        """Raises ProtocolError for what is no checkpoint."""
        try:
            return cls(
                from_sample=_typed("from_sample", value["from_sample"], int),
                frames=_typed("frames", value["frames"], int),
                sounding=frozenset(
                    _typed("note_id", note["note_id"], int) for note in value["sounding"]
                ),
                raw=value,
            )
        except (KeyError, TypeError) as error:
            raise ProtocolError(f"the server's checkpoint has no {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The session is open. A note_on may come ``delay_ms`` after its sound, a note_off
    ``note_off_delay_ms`` after its time (0: the server does not say)."""

    session_id: str
    model: str
    sample_rate_hz: float
    hop_samples: int
    frame_rate_hz: float
    mode: str
    lookahead_ms: float
    block_frames: int
    delay_ms: float
    replay_ms: float
    checkpoint: Checkpoint
    note_off_delay_ms: float = 0.0
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOn:
    """A note begins, at ``time_s`` seconds of the audio sent."""

    note_id: int
    pitch: int
    velocity: int
    confidence: float
    frame: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOff:
    """The note ``note_id`` ends."""

    note_id: int
    pitch: int
    frame: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``received_samples`` (per channel) are acknowledged, ``time_s`` seconds transcribed."""

    received_samples: int
    frames: int
    time_s: float
    behind_ms: float
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Lagging:
    """Transcription is ``behind_ms`` behind the audio received."""

    behind_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """The server goes down; what it says from here on ends the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """All that the audio before the marker ``id`` can tell has been told."""

    id: str
    frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The session is over. ``reason`` is ``stop``, ``draining`` or ``error``."""

    reason: str
    totals: Mapping[str, Any]
    midi_base64: str

    @property
    def midi(self) -> bytes:
        """The whole performance as a Standard MIDI File."""
        return base64.b64decode(self.midi_base64, validate=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMessage:
    """Why the server ends the session."""

    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownMessage:
    """A message of a newer protocol, to be ignored."""

    type: str


Heard = Ready | NoteOn | NoteOff | Progress | Lagging
"""What a session tells while it runs."""
Message = Heard | Draining | Flushed | Done | ErrorMessage | UnknownMessage

_MESSAGES: dict[str, type[Any]] = {
    "ready": Ready,
    "note_on": NoteOn,
    "note_off": NoteOff,
    "progress": Progress,
    "lagging": Lagging,
    "draining": Draining,
    "flushed": Flushed,
    "done": Done,
    "error": ErrorMessage,
}
_HINTS = {message: get_type_hints(message) for message in _MESSAGES.values()}


def parse_message(text: str | bytes) -> tuple[int, Message]:
    """Read one message of the server; returns its ``seq`` and what it says.

    Raises:
        ProtocolError: it is binary, not a JSON object, or a field is missing or of a wrong type.
    """
    if isinstance(text, bytes):
        raise ProtocolError("the server sent binary data")
    try:
        # "Infinity" and "NaN" are Python's idea of JSON, not the protocol's.
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the server sent no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError("the server sent JSON that is no object")
    seq = _typed("seq", value.get("seq"), int)
    kind = _typed("type", value.get("type"), str)
    message = _MESSAGES.get(kind)
    if message is None:
        return seq, UnknownMessage(type=kind)
    given: dict[str, Any] = {}
    for field in fields(message):
        if field.name in value:
            wanted = _HINTS[message][field.name]
            given[field.name] = _typed(f"{kind}.{field.name}", value[field.name], wanted)
        elif field.default is MISSING:
            raise ProtocolError(f"the server's {kind} has no {field.name}")
    parsed: Message = message(**given)
    if isinstance(parsed, Done):
        _check_midi(parsed)
    if isinstance(parsed, NoteOn | NoteOff) and not 0 <= parsed.pitch <= 127:
        raise ProtocolError(f"{kind}.pitch is {parsed.pitch}")
    return seq, parsed


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _check_midi(done: Done) -> None:
    try:
        midi = done.midi
    except (binascii.Error, ValueError):
        raise ProtocolError("done.midi_base64 is no base64") from None
    if not midi.startswith(b"MThd"):
        raise ProtocolError("done.midi_base64 holds no MIDI file")


def _typed(name: str, value: Any, wanted: Any) -> Any:
    """``value`` if it is of the type ``wanted``; bool is no number, int is a float."""
    if wanted is Checkpoint:
        return Checkpoint.parse(value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted in (int, float, str, bool):
        fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    else:
        fits = isinstance(value, dict)
    if not fits:
        raise ProtocolError(f"the server's {name} is {value!r}")
    return value
