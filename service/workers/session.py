"""A live session in its worker: audio in, messages for the client out."""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import asdict
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, ModelConfig
from model.transcriber import FeatureStream
from service.notes.events import Event, is_optional_event
from service.notes.tracker_settings import TrackerSettings
from service.protocol.client_messages import Checkpoint
from service.protocol.faults import CloseCode, ProtocolError, internal_error
from service.protocol.midi_file import DEFAULT_TEMPO, Tempo
from service.protocol.server_messages import (
    Beat,
    Done,
    DoneReason,
    Draining,
    Error,
    Flushed,
    Frames,
    Progress,
    Ready,
    ServerMessage,
    event_message,
)
from service.score.analysis import analyse
from service.score.live import CONTEXT_S, LiveBeats
from service.stream.resume import checkpoint_of, resume_point
from service.stream.setup import chosen
from service.stream.stream import MAX_NOTES, Stream
from service.workers.messages import Open, Said

PROGRESS_S = 0.5  # from one `progress` of a session to the next, beside those that follow notes

LOWEST_PITCH = 21
PIANO_PITCHES = 88  # of a piano: A0 to C8
_FULL = 255  # the byte of probability 1


class LiveSession:
    """Turns what a stream finds into the messages of the protocol.

    A `progress` follows the notes of each step at once. Its checkpoint covers exactly the notes
    sent before it, so whoever has it, the client or the service, can go on from there. After the
    audio's end there is none: all that follows is said at once.

    Attributes:
        number: of the stream, between the service and the worker.
        features: of its network; the worker's, as what follows.
        waiting: among the sessions whose windows are due.
    """

    features: FeatureStream
    waiting = False

    def __init__(self, opening: Open, config: ModelConfig, settings: TrackerSettings) -> None:
        """Raises ProtocolError if the stream cannot be opened so, or not continued there."""
        self._opening = opening
        self.number = opening.stream
        known = opening.known
        before = known.checkpoint
        self._heat = _Heat() if opening.heat else None
        self.stream = Stream(
            config,
            settings,
            opening.audio,
            opening.options,
            max_notes=MAX_NOTES,
            on_frames=self._heat.add if self._heat else None,
            resume=resume_point(before) if before else None,
        )
        if self._heat and known.messages:
            self._heat.begin(known.heat_frame)
        elif self._heat and before:  # later frames were not final when the earlier session ended
            self._heat.begin(max(0, before.frames - self.stream.late_frames))
        self.stream.score.restore(known.score)
        self._beats: LiveBeats | None = None
        if opening.beats:
            self._beats = known.beats or LiveBeats(self._heard_s)
        self._beats_kept = len(self._beats.reported) if self._beats else 0
        # Events that the client has from before it reconnected; a `progress` of ours covers them.
        self._skip = known.skip
        self._seq = known.messages
        self._fed_bytes = self._flushed = self._heard = 0
        # Windows to be heard before, the frame that they lead to, id.
        self._flushes: deque[tuple[int, int, str]] = deque()
        self._end: tuple[DoneReason, ProtocolError | None] | None = None
        self._finished = False
        self._told: tuple[int, int] | None = None  # by the last progress
        self._told_s = monotonic()
        self._said_bytes = 0
        self._draft = Said(self.number)  # what will be said next
        if not known.messages:
            self._put(self._ready(config))
            self._draft.opened = self.stream.totals

    # -- what comes in ----------------------------------------------------------------------------

    def feed(self, audio: bytes) -> None:
        self._fed_bytes += len(audio)
        self.stream.feed(audio)
        if self.stream.fault is not None:
            self.end("error", self.stream.fault)

    def flush(self, name: str) -> None:
        """Answered once all earlier audio has been transcribed."""
        self._flushes.append((self._heard + self.stream.due, self.stream.frames_due, name))
        self._answer_flushes()

    def end(self, reason: DoneReason, error: ProtocolError | None) -> None:
        """No more audio comes; the stream's last windows become due."""
        if self._end is None:
            self._end = reason, error
            if error is not None:
                self._put(Error.of(error))
            elif reason == "draining":
                self._put(Draining())
            self.stream.end()

    def hear(self, probabilities: NDArray[np.float32]) -> None:
        """Take the probabilities of the stream's next windows."""
        self._say(self.stream.hear(probabilities))
        if self._beats is not None and self._known_s >= self._beats.due_s:
            notes = self.stream.score.sounding_since(self._beats.due_s - CONTEXT_S)
            self._put(*(Beat(**asdict(one)) for one in self._beats.update(notes, self._known_s)))
        self._heard += len(probabilities)
        self._answer_flushes()
        if self.stream.fault is not None:
            self.end("error", self.stream.fault)

    def fail(self) -> None:
        """The server failed on this session: it ends here, with the notes that it has."""
        fault = internal_error()
        self._end = "error", fault
        self._beats = None
        self._put(Error.of(fault))
        self._finish(self.stream.close())

    # -- what goes out ----------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        """Whether no more audio comes."""
        return self._end is not None

    def said(self, now_s: float) -> Said | None:
        """What there is to say, if anything; to be asked after every step, and now and then."""
        if self._end is None:
            self._report(now_s)
        elif not self._finished:
            if self.stream.due:
                return None
            self._finish_regularly()
        said, byte_rate = self._draft, self._opening.audio.byte_rate
        due_s = self.stream.due * self._opening.options.frames_per_window * self.stream.frame_s
        said.taken_bytes = self._fed_bytes - int(due_s * byte_rate)
        silent = not said.texts and said.checkpoint is None
        if silent and said.taken_bytes - self._said_bytes < byte_rate // 4:
            return None
        self._said_bytes, self._draft = said.taken_bytes, Said(self.number)
        said.flushed, said.skip = self._flushed, self._skip
        said.score = self.stream.score.take_new_notes() if said.checkpoint else None
        said.heat_frame = self._heat.next_frame if self._heat else 0
        said.behind_s = self.stream.behind_ms / 1000
        if self._beats is not None:
            said.beats = self._beats.since(self._beats_kept)
            self._beats_kept = len(self._beats.reported)
        return said

    def _ready(self, config: ModelConfig) -> Ready:
        """The message that states the options in effect."""
        opening, delay = self._opening, self.stream.delay
        described = chosen(opening.options, config)
        return Ready(
            **described | {"instruments": described["instruments"] or None},
            session_id=opening.session_id,
            sample_rate_hz=config.sample_rate,
            hop_samples=HOP,
            frame_rate_hz=config.sample_rate / HOP,
            delay_ms=round(delay.note_on_ms, 3),
            median_delay_ms=delay.note_on_median_ms,
            note_off_delay_ms=round(delay.note_off_ms, 3),
            replay_ms=round(self.stream.replay_ms, 3),
            checkpoint=self._checkpoint(),
            limits=opening.limits,
        )

    def _say(self, events: list[Event]) -> None:
        """Say events and, until the audio has ended, the point that they lead to."""
        if self._heat is not None and (frames := self._heat.take()) is not None:
            self._put(frames)
        delay = self.stream.delay
        for event in events:
            if is_optional_event(event) and not self._opening.updates:
                continue
            if self._skip:
                self._skip -= 1
                continue
            if event.kind == "note_on":
                self._draft.note_ons += 1
            if event.kind in ("note_on", "note_off", "pedal"):
                delay_ms = delay.note_off_ms if event.kind == "note_off" else delay.note_on_ms
                self._draft.due_s.append(event.time_s + delay_ms / 1000)
            self._put(event_message(event))
        if self._end is None and events and not self._skip:
            self._put_progress()

    def _report(self, now_s: float) -> None:
        if now_s - self._told_s < PROGRESS_S:
            return
        self._told_s = now_s
        if self._state == self._told:
            return
        if self._skip:
            self._told, self._draft.checkpoint = self._state, self._checkpoint()
        else:
            self._put_progress()

    def _put_progress(self) -> None:
        self._told = received, frames = self._state
        self._draft.checkpoint = checkpoint = self._checkpoint()
        self._put(
            Progress(
                received_samples=received,
                frames=frames,
                time_s=round(frames * self.stream.frame_s, 6),
                behind_ms=round(self.stream.behind_ms, 1),
                checkpoint=checkpoint,
            )
        )

    def _answer_flushes(self) -> None:
        while self._flushes and self._flushes[0][0] <= self._heard:
            self._flushed += 1
            _, frame, name = self._flushes.popleft()
            self._put(Flushed(id=name, frame=frame))

    def _finish_regularly(self) -> None:
        assert self._end is not None
        reason, error = self._end
        events = self.stream.finish()
        # Without `stop`, an incomplete last sample is not the client's fault.
        fault = self.stream.fault or (self.stream.incomplete if reason == "stop" else None)
        if error is None and fault is not None:
            self._end = "error", fault
            self._put(Error.of(fault))
        self._finish(events)

    def _finish(self, events: list[Event]) -> None:
        assert self._end is not None
        reason, error = self._end
        self._finished = True
        self._say(events)
        totals = self.stream.totals
        midi = base64.b64encode(self.stream.score.midi(self._last_beats())).decode()
        self._put(Done(reason=reason, totals=totals, midi_base64=midi))
        close_code = CloseCode.GOING_AWAY if reason == "draining" else CloseCode.NORMAL
        self._draft.ended = reason, close_code, totals
        if error is not None:
            self._draft.ended = error.code, error.code.close_code, totals

    def _last_beats(self) -> Tempo:
        """Say them; returns the tempo of the MIDI file."""
        if self._beats is None:
            return DEFAULT_TEMPO
        notes = self.stream.score.sounding_since(self._beats.due_s - CONTEXT_S)
        self._put(*(Beat(**asdict(one)) for one in self._beats.finish(notes, self._heard_s)))
        return analyse(self.stream.score.notes, reported=self._beats.reported).tempo

    def _put(self, *messages: ServerMessage) -> None:
        for message in messages:
            message.seq = self._seq
            self._seq += 1
            self._draft.texts.append(message.model_dump_json(exclude_none=True))

    def _checkpoint(self) -> Checkpoint:
        return checkpoint_of(self._opening.session_id, self.stream.point)

    @property
    def _state(self) -> tuple[int, int]:
        return self.stream.totals.received_samples, self.stream.frames

    @property
    def _heard_s(self) -> float:
        return self.stream.frames * self.stream.frame_s

    @property
    def _known_s(self) -> float:
        """All that began or ended before has been said."""
        delay = self.stream.delay
        return self._heard_s - max(delay.note_on_ms, delay.note_off_ms) / 1000


class _Heat:
    """The probabilities of the frames that have been heard, until they are sent.

    Bounded, because they are taken after every step.
    """

    def __init__(self) -> None:
        self.next_frame = self._first_frame = 0
        self._blocks: list[NDArray[np.uint8]] = []

    def begin(self, first_frame: int) -> None:
        """The client has the frames before."""
        self.next_frame = self._first_frame = first_frame

    def add(self, first_frame: int, probabilities: NDArray[np.float32]) -> None:
        """Adds the next frames, shape [heads, n, 128]; only the first head is used."""
        known = max(0, self._first_frame - first_frame)
        pitches = probabilities[0, known:, LOWEST_PITCH : LOWEST_PITCH + PIANO_PITCHES]
        if len(pitches):
            self._blocks.append(np.rint(_FULL * pitches.clip(0, 1)).astype(np.uint8))

    def take(self) -> Frames | None:
        if not self._blocks:
            return None
        values = np.concatenate(self._blocks)
        self._blocks = []
        message = Frames(
            frame=self.next_frame,
            count=len(values),
            lowest_pitch=LOWEST_PITCH,
            pitches=PIANO_PITCHES,
            probabilities_base64=base64.b64encode(values.tobytes()).decode(),
        )
        self.next_frame += len(values)
        return message
