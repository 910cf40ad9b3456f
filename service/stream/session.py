"""A live session in its worker: from the client's audio to messages for the client."""

from __future__ import annotations

import base64
import pickle
from collections import deque
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, ModelConfig
from service.audio.input_check import InputCheck
from service.notes.event_detector import PEDAL_FRAMES
from service.notes.events import Event, is_optional_event
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint
from service.protocol.client_messages import Start
from service.protocol.errors import CloseCode, ProtocolError
from service.protocol.options import StreamOptions
from service.protocol.server_messages import (
    Beat,
    DoneReason,
    Draining,
    Error,
    Flushed,
    Frames,
    InputWarning,
    Limits,
    Progress,
    Ready,
    ServerMessage,
    Totals,
    event_message,
)
from service.score.live import CONTEXT_S, LiveBeats
from service.stream.ending import Ending
from service.stream.setup import describe_options
from service.stream.stream import MAX_NOTES, Stream

if TYPE_CHECKING:
    from model.transcriber import FeatureStream  # imports torch

LOWEST_PITCH = 21
PIANO_PITCHES = 88  # A0 to C8
OVERLOADED = "the server is overloaded: notes are late, in larger blocks, until it catches up"
PROGRESS_S = 0.5  # interval of `progress` messages, in addition to those that follow events


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session to be opened."""

    start: Start
    session_id: str  # ID of the performance in the client's checkpoints
    limits: Limits
    overload_lag_s: float  # delay of the transcription from which windows are wide
    number: int = 0  # used only between the service and its worker


@dataclass(slots=True)
class SessionOutput:
    """Messages for a client, and the state of its session."""

    number: int
    messages: list[str] = field(default_factory=list)  # JSON texts in order
    transcribed_bytes: int = 0  # bytes of the session's audio transcribed so far
    flushed: int = 0  # number of `flush` messages acknowledged so far
    note_ons: int = 0  # number of `note_on` messages in ``messages``
    # Time of each note and pedal event plus its guaranteed maximum delay.
    event_deadlines_s: list[float] = field(default_factory=list)
    behind_s: float = 0.0  # received audio that is not transcribed (``Stream.behind_ms``)
    initial_totals: Totals | None = None  # of the performance's earlier sessions, with `ready`
    final_state: tuple[str, int, Totals] | None = None  # reason or error code, close code, totals
    # With ``final_state``, if ``messages`` lacks `done`: a pickled ``ending.Ending``.
    ending: bytes | None = None
    error: ProtocolError | None = None  # set if the session cannot be opened or continued


class LiveSession:
    """Converts the events of a stream to messages of the protocol.

    A `progress` immediately follows the events of each step. Its checkpoint covers exactly the
    events sent before it. There is none after the end of the audio. The worker sets ``features``
    and ``is_queued``.
    """

    features: FeatureStream  # streaming state of the network
    is_queued = False  # True if the session is in the worker's queue

    def __init__(
        self, opening: OpenSession, config: ModelConfig, settings: TrackerSettings
    ) -> None:
        """Raises ProtocolError if the options or the checkpoint are invalid."""
        start = opening.start
        checkpoint = start.resume or Checkpoint.start(opening.session_id)
        self.number = opening.number
        self._opening = opening
        self._audio, self._options = start.audio(), start.options(StreamOptions())
        self._input_check = InputCheck(self._audio)
        self.stream = Stream(
            config,
            settings,
            self._audio,
            self._options,
            max_notes=MAX_NOTES,
            on_frames=self._send_frames if start.frames else None,
            checkpoint=checkpoint,
        )
        # The latest frames were not final in the earlier session.
        self._sent_frames = max(0, checkpoint.frames - self.stream.late_frames)
        self._beats = LiveBeats(self._processed_s) if start.beats else None
        self._skip_events = checkpoint.known_events
        self._seq = 0
        self._fed_bytes = self._reported_bytes = self._flushed = 0
        # Unacknowledged `flush` messages: number of blocks to process before `flushed`, and ID.
        self._flushes: deque[tuple[int, str]] = deque()
        self._end: tuple[DoneReason, ProtocolError | None] | None = None
        self._finished = False
        self._played_s = monotonic()  # time at which real-time playback of all audio would end
        self._is_catching_up = self._has_warned = False
        self._reported: tuple[int, int] | None = None  # `_progress` in the latest message
        self._reported_at_s = monotonic()
        self._pending = SessionOutput(self.number, initial_totals=self.stream.totals)
        self._queue(self._ready(config))

    # -- input ----------------------------------------------------------------------------

    def feed(self, audio: bytes, now_s: float) -> None:
        self._fed_bytes += len(audio)
        self._played_s = max(self._played_s, now_s) + len(audio) / self._audio.byte_rate
        if (warning := self._input_check.check(audio)) is not None:
            self._queue(InputWarning(code="unlikely_audio", message=warning))
        self.stream.feed(audio)
        if self.stream.error is not None:
            self.end("error", self.stream.error)

    def flush(self, flush_id: str) -> None:
        blocks = self.stream.processed_blocks + self.stream.pending_windows
        self._flushes.append((blocks, flush_id))
        self._acknowledge_flushes()

    def end(self, reason: DoneReason, error: ProtocolError | None) -> None:
        """End the audio. The stream's last windows become pending. Idempotent."""
        if self._end is None:
            self._end = reason, error
            if error is not None:
                self._queue(Error.of(error))
            elif reason == "draining":
                self._queue(Draining())
            self.stream.end()

    def process_predictions(self, probabilities: NDArray[np.float32]) -> None:
        self._send_events(self.stream.process_predictions(probabilities))
        if self._beats is not None and self._decided_s >= self._beats.due_s:
            notes = self.stream.collector.sounding_since(self._beats.due_s - CONTEXT_S)
            beats = self._beats.update(notes, self._decided_s)
            self._queue(*(Beat(**asdict(beat)) for beat in beats))
        self._acknowledge_flushes()
        if self.stream.error is not None:
            self.end("error", self.stream.error)

    def is_catching_up(self, now_s: float) -> bool:
        """True if the next window must be wide, because the worker is overloaded. Wide windows
        start when transcription is `overload_lag_s` behind real-time playback of the audio, and
        stop when less audio than a wide window needs is pending. Audio that arrives faster than
        real time is not late."""
        if not self.stream.can_widen:
            self._is_catching_up = False
        elif not self._is_catching_up:
            late_s = now_s - self._played_s + self._pending_s
            self._is_catching_up = late_s > self._opening.overload_lag_s
            if self._is_catching_up and not self._has_warned:
                self._has_warned = True
                self._queue(InputWarning(code="overloaded", message=OVERLOADED))
        return self._is_catching_up

    # -- output ----------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        return self._end is not None

    def collect_output(self, now_s: float) -> SessionOutput | None:
        """Return the new output, or None. Call this after each step and at each poll."""
        if self._end is None:
            if now_s - self._reported_at_s >= PROGRESS_S:
                self._reported_at_s = now_s
                if self._progress != self._reported and not self._skip_events:
                    self._queue_progress()
        elif not self._finished and not self.stream.pending_windows:
            self._finish()
        output, byte_rate = self._pending, self._audio.byte_rate
        output.transcribed_bytes = self._fed_bytes - int(self._pending_s * byte_rate)
        new_bytes = output.transcribed_bytes - self._reported_bytes
        is_last = output.final_state is not None
        if not (output.messages or is_last) and new_bytes < byte_rate // 2:  # less than 0.5 s
            return None
        self._reported_bytes = output.transcribed_bytes
        self._pending = SessionOutput(self.number)
        output.flushed = self._flushed
        output.behind_s = self.stream.behind_ms / 1000
        return output

    def _ready(self, config: ModelConfig) -> Ready:
        opening, delay = self._opening, self.stream.delay
        description = describe_options(self._options, config)
        return Ready(
            **description | {"instruments": description["instruments"] or None},
            session_id=opening.session_id,
            sample_rate_hz=config.sample_rate,
            hop_samples=HOP,
            frame_rate_hz=config.sample_rate / HOP,
            delay_ms=round(delay.note_on_ms, 3),
            median_delay_ms=delay.note_on_median_ms,
            note_off_delay_ms=round(delay.note_off_ms, 3),
            replay_ms=round(self.stream.replay_ms, 3),
            checkpoint=self.stream.checkpoint,
            limits=opening.limits,
        )

    def _send_events(self, events: list[Event]) -> None:
        """Queue events and, until the audio has ended, a `progress`."""
        delay = self.stream.delay
        for event in events:
            if is_optional_event(event) and not self._opening.start.updates:
                continue
            if self._skip_events:
                self._skip_events -= 1
                continue
            if event.kind == "note_on":
                self._pending.note_ons += 1
            if event.kind in ("note_on", "note_off", "pedal"):
                delay_ms = delay.note_off_ms if event.kind == "note_off" else delay.note_on_ms
                if event.kind == "pedal":  # a pedal event has the centre of a mean of frames
                    delay_ms += 1000 * PEDAL_FRAMES / 2 * self.stream.frame_s
                self._pending.event_deadlines_s.append(event.time_s + delay_ms / 1000)
            self._queue(event_message(event))
        if self._end is None and events and not self._skip_events:
            self._queue_progress()

    def _send_frames(self, first_frame: int, probabilities: NDArray[np.float32]) -> None:
        """Queue the next frames, shape [heads, n, 128], from the frame ``_sent_frames`` on. Only
        the first head is used."""
        new = probabilities[0, max(0, self._sent_frames - first_frame) :]
        if not len(new):
            return
        values = new[:, LOWEST_PITCH : LOWEST_PITCH + PIANO_PITCHES].clip(0, 1)
        data = np.rint(255 * values).astype(np.uint8).tobytes()
        self._queue(
            Frames(
                frame=self._sent_frames,
                count=len(new),
                lowest_pitch=LOWEST_PITCH,
                pitches=PIANO_PITCHES,
                probabilities_base64=base64.b64encode(data).decode(),
            )
        )
        self._sent_frames += len(new)

    def _queue_progress(self) -> None:
        self._reported = received, frames = self._progress
        self._queue(
            Progress(
                received_samples=received,
                frames=frames,
                time_s=round(frames * self.stream.frame_s, 6),
                behind_ms=round(self.stream.behind_ms, 1),
                checkpoint=self.stream.checkpoint,
            )
        )

    def _acknowledge_flushes(self) -> None:
        while self._flushes and self._flushes[0][0] <= self.stream.processed_blocks:
            self._flushed += 1
            self._queue(Flushed(id=self._flushes.popleft()[1]))

    def _finish(self) -> None:
        assert self._end is not None
        reason, error = self._end
        events = self.stream.finish()
        # An incomplete PCM frame is an error only after `stop`. Otherwise a chunk may be cut off.
        incomplete = self.stream.decoder.incomplete if reason == "stop" else None
        audio_error = self.stream.error or incomplete
        if error is None and audio_error is not None:
            reason, error = "error", audio_error
            self._queue(Error.of(error))
        self._finished = True
        self._send_events([*events, *self.stream.collector.settle_instruments()])
        self._send_last_beats()
        totals, collector = self.stream.totals, self.stream.collector
        beats = None if self._beats is None else self._beats.reported
        ending = Ending(reason, self._seq, totals, collector.notes, collector.pedal, beats)
        if ending.is_short:
            self._pending.messages.append(ending.done())
        else:
            self._pending.ending = pickle.dumps(ending)
        close_code = CloseCode.GOING_AWAY if reason == "draining" else CloseCode.NORMAL
        self._pending.final_state = reason, close_code, totals
        if error is not None:
            self._pending.final_state = error.code, error.code.close_code, totals

    def _send_last_beats(self) -> None:
        if self._beats is not None:
            notes = self.stream.collector.sounding_since(self._beats.due_s - CONTEXT_S)
            beats = self._beats.finish(notes, self._processed_s)
            self._queue(*(Beat(**asdict(beat)) for beat in beats))

    def _queue(self, *messages: ServerMessage) -> None:
        for message in messages:
            message.seq = self._seq
            self._seq += 1
            self._pending.messages.append(message.model_dump_json(exclude_none=True))

    @property
    def _progress(self) -> tuple[int, int]:
        """Number of received samples, and number of processed frames."""
        return self.stream.totals.received_samples, self.stream.frames

    @property
    def _pending_s(self) -> float:
        """Duration in s of the new audio of the pending windows."""
        frames = self.stream.pending_windows * self._options.frames_per_window
        return frames * self.stream.frame_s

    @property
    def _processed_s(self) -> float:
        return self.stream.frames * self.stream.frame_s

    @property
    def _decided_s(self) -> float:
        """Time in s before which all onsets and offsets are decided."""
        delay = self.stream.delay
        return self._processed_s - max(delay.note_on_ms, delay.note_off_ms) / 1000
