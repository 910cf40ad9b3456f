"""What the service and its workers tell each other, and its form on their socket.

Audio is most of it and crosses as it came; everything else is pickled.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, PITCHES, WINDOW, ModelConfig
from service.notes.note_collector import CollectorState
from service.protocol.client_messages import Checkpoint
from service.protocol.faults import ErrorCode
from service.protocol.options import AudioFormat, StreamOptions
from service.protocol.server_messages import DoneReason, Limits, Totals
from service.score.live import LiveBeats
from service.stream.windows import SEGMENT_FRAMES, Due

_HEADER = struct.Struct("<IQ")  # stream, or 0 for a pickled message; bytes
_PICKLED = 0

LoadModel = Callable[[str, str], Any]
"""Loads weights, by name or path, onto a device, either of which may be `auto`: a function that can
be imported, for workers are processes."""

SLOTS = 2  # segments that a worker has: one that it computes, one that waits


def slots(
    configs: Sequence[ModelConfig], memory: Callable[[int], mmap.mmap]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Room for the samples and the probabilities of segments, each [SLOTS, values]: views of what a
    worker shares with the service. configs: of its models; memory: maps so many bytes."""
    refill_hops = max(config.refill_hops for config in configs)
    samples = WINDOW + (SEGMENT_FRAMES + refill_hops + FRAMES) * HOP
    probabilities = max(len(config.outputs) for config in configs) * SEGMENT_FRAMES * PITCHES
    shared = memory(4 * SLOTS * (samples + probabilities))
    values = np.frombuffer(shared, np.float32).reshape(SLOTS, -1)
    return values[:, :samples], values[:, samples:]


# -- to a worker ----------------------------------------------------------------------------------


class Setup(NamedTuple):
    """The first message: what to load; ``model`` and ``device`` are names, or `auto`. ``piano``
    names a second model, for recordings of pianos; None: there is none."""

    load: LoadModel
    model: str
    device: str
    piano: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the client of a session has: where a worker begins, or goes on after another.

    Attributes:
        messages: sent in this session; 0 if no worker has spoken yet.
        checkpoint: where to go on, sent or not; None: at the beginning.
        skip: the first events after it, which the client has.
        score: the notes and presses that ended before it, in this session.
        heat_frame: first frame whose probabilities were not sent in this session.
        beats: those said in this session, and where they go on.
    """

    messages: int = 0
    checkpoint: Checkpoint | None = None
    skip: int = 0
    score: CollectorState = field(default_factory=CollectorState)
    heat_frame: int = 0
    beats: LiveBeats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A live session begins, or goes on in another worker.

    Attributes:
        session_id: that of the client's checkpoints.
        limits: said to the client.
        updates: whether the client wants corrections and the pedal.
        heat: whether it wants probabilities.
        beats: whether it wants beats.
    """

    session_id: str
    audio: AudioFormat
    options: StreamOptions
    limits: Limits
    stream: int = 0
    known: Known = field(default_factory=Known)
    updates: bool = False
    heat: bool = False
    beats: bool = False


class Flush(NamedTuple):
    stream: int
    id: str


class End(NamedTuple):
    """No more audio: `stop`, `draining`, or `error` with the code and words of one."""

    stream: int
    reason: DoneReason
    error: tuple[ErrorCode, str] | None = None


class Drop(NamedTuple):
    """Nobody waits for this session any more."""

    stream: int


class Segment(NamedTuple):
    """Windows of a recording, whose samples lie in a slot; the answer will lie there too."""

    slot: int
    samples: int
    due: Due  # without its samples
    for_piano: bool


class Ping(NamedTuple):
    """Answered with the same."""


# -- from a worker --------------------------------------------------------------------------------


class LoadedModel(NamedTuple):
    """Configuration and card of a model that a worker has loaded."""

    config: ModelConfig
    card: Mapping[str, Any]


class Hello(NamedTuple):
    """The model is loaded, and the one for pianos if the setup names one."""

    config: ModelConfig
    card: Mapping[str, Any]
    device: str
    piano: LoadedModel | None

    @property
    def configs(self) -> list[ModelConfig]:
        """Configurations of all models."""
        return [self.config] if self.piano is None else [self.config, self.piano.config]


class Failed(NamedTuple):
    """The model cannot be loaded."""

    error: str


@dataclass
class Said:
    """Messages for a client, with what another worker would need to go on after them.

    Attributes:
        texts: in order, as they are to be sent.
        taken_bytes: of the session's audio, transcribed so far.
        flushed: answers to `Flush` so far.
        checkpoint: where another worker could go on: that of the last progress among the texts or,
            while the client has events that follow it, one that is not sent; None if there is none.
        skip, heat_frame: see `Known`.
        score: the notes and presses that ended since the checkpoint before.
        beats: the same of beats, since what was said before.
        note_ons: among the texts.
        due_s: of each event among them, the audio's time at which it could first be known.
        behind_s: audio received and not transcribed.
        opened: totals before this session, once `ready` is among the texts.
        ended: of a session that is over: its reason or error code, the close code, totals.
    """

    stream: int
    texts: list[str] = field(default_factory=list)
    taken_bytes: int = 0
    flushed: int = 0
    checkpoint: Checkpoint | None = None
    skip: int = 0
    score: CollectorState | None = None
    heat_frame: int = 0
    beats: LiveBeats | None = None
    note_ons: int = 0
    due_s: list[float] = field(default_factory=list)
    behind_s: float = 0.0
    opened: Totals | None = None
    ended: tuple[str, int, Totals] | None = None


class Refused(NamedTuple):
    """A session cannot be opened: the code and words of an error."""

    stream: int
    code: ErrorCode
    message: str


class Computed(NamedTuple):
    """A segment's probabilities are in its slot, in this shape; or its error."""

    slot: int
    shape: tuple[int, ...]
    error: str | None


class Stepped(NamedTuple):
    """A batch was computed: `live` or `file`, windows, seconds; windows 0 if it failed."""

    way: str
    windows: int
    seconds: float


# -- on the socket --------------------------------------------------------------------------------


def audio_frame(stream: int, data: bytes | bytearray) -> bytes:
    """Audio of a stream, whose number is at least 1."""
    return _HEADER.pack(stream, len(data)) + data


def message_frame(message: object) -> bytes:
    """A message to a worker, or a list of those from one."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(_PICKLED, len(data)) + data


@dataclass
class MessageReader:
    """Takes bytes of a socket as they come, and gives the frames that are complete."""

    _rest: bytearray = field(default_factory=bytearray)

    def take(self, data: bytes) -> Iterator[tuple[int, Any]]:
        """(stream, audio) or (0, message), in order."""
        rest = self._rest
        rest += data
        at = 0
        while len(rest) - at >= _HEADER.size:
            stream, size = _HEADER.unpack_from(rest, at)
            start = at + _HEADER.size
            if len(rest) - start < size:
                break
            content = bytes(memoryview(rest)[start : start + size])
            at = start + size
            yield stream, pickle.loads(content) if stream == _PICKLED else content
        del rest[:at]
