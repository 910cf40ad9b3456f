"""Messages between the service and its workers. They are pickled, and framed like the messages of
``multiprocessing.connection.Connection``."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.config import ModelConfig
from service.protocol.client_messages import Resume
from service.protocol.errors import ErrorCode
from service.protocol.options import AudioFormat, StreamOptions
from service.protocol.server_messages import DoneReason, Limits, Totals
from service.stream.windows import PendingWindows, Probabilities

LENGTH = struct.Struct("!i")  # header of a packet: the number of bytes that follow

LoadModel = Callable[[str, str], Any]
"""Function that loads a model (name or path) on a device. Both arguments may be `auto`. It must be
possible to pickle the function, because workers may be processes."""


def packet(message: object) -> bytes:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


# -- to a worker ----------------------------------------------------------------------------------


class WorkerConfig(NamedTuple):
    """First message to a worker. ``model`` and ``device`` are the arguments of ``load``."""

    load: LoadModel
    model: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Open a live session.

    Attributes:
        session_id: ID of the performance in the client's checkpoints.
        stream: number of the session, used only between the service and the worker.
        overload_lag_s: delay of the transcription behind real time from which windows are wide.
        updates, frames, beats: True if the client requested these messages.
    """

    session_id: str
    audio: AudioFormat
    options: StreamOptions
    limits: Limits
    overload_lag_s: float
    stream: int = 0
    resume: Resume | None = None
    updates: bool = False
    frames: bool = False
    beats: bool = False


class Audio(NamedTuple):
    """Process the next PCM bytes of a session."""

    stream: int
    data: bytes


class Flush(NamedTuple):
    """Send `flushed` once all earlier audio has been transcribed."""

    stream: int
    id: str


class EndAudio(NamedTuple):
    """End the audio of a session. ``error`` is set if the reason is `error`."""

    stream: int
    reason: DoneReason
    error: tuple[ErrorCode, str] | None = None


class CloseSession(NamedTuple):
    """Discard a session whose output is no longer needed."""

    stream: int


class Segment(NamedTuple):
    """Compute a segment of a recording."""

    number: int
    due: PendingWindows


class Ping(NamedTuple):
    """Heartbeat. The worker replies with the same message."""


# -- from a worker --------------------------------------------------------------------------------


class ModelLoaded(NamedTuple):
    """The worker is ready. ``window_s`` is the time that one window took in the warm-up."""

    config: ModelConfig
    card: Mapping[str, Any]
    device: str
    window_s: float


class ModelLoadFailed(NamedTuple):
    """The worker cannot load the model and exits."""

    error: str


@dataclass(slots=True)
class SessionOutput:
    """Messages for a client, and the state of its session.

    Attributes:
        messages: JSON texts in order.
        transcribed_bytes: bytes of the session's audio transcribed so far.
        flushed: number of `Flush` messages acknowledged so far.
        note_ons: number of `note_on` messages in ``messages``.
        event_deadlines_s: time of each note and pedal event plus its guaranteed maximum delay.
        behind_s: seconds of received audio that are not transcribed (``Stream.behind_ms``).
        initial_totals: totals of the performance's earlier sessions, in the output with `ready`.
        final_state: reason or error code, close code, and totals, in the last output.
    """

    stream: int
    messages: list[str] = field(default_factory=list)
    transcribed_bytes: int = 0
    flushed: int = 0
    note_ons: int = 0
    event_deadlines_s: list[float] = field(default_factory=list)
    behind_s: float = 0.0
    initial_totals: Totals | None = None
    final_state: tuple[str, int, Totals] | None = None


class SessionFailed(NamedTuple):
    """The session cannot be opened or continued."""

    stream: int
    code: ErrorCode
    message: str


class SegmentPart(NamedTuple):
    """Probabilities of the next windows of a segment. ``error``: the model failed, and no other
    part follows."""

    number: int
    probabilities: Probabilities | None
    is_last: bool = False
    error: str = ""


class BatchTiming(NamedTuple):
    """Computing time of a batch.

    ``model_s`` is the time of the network. In live batches ``total_s`` also includes note tracking
    and messages. ``way`` is `live` or `file`. ``windows`` is 0 if the batch failed.
    """

    way: str
    windows: int
    model_s: float
    total_s: float


Result = SegmentPart | BatchTiming
