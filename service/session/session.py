"""One performance, from its bytes to its notes, for live streams and files alike."""

import asyncio
import math
from collections.abc import Callable
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, WINDOW
from service.audio.channels import MIX_MS
from service.audio.pcm import BadAudioError, PcmDecoder, check_and_mix
from service.audio.resample import RateRatio, Resampler
from service.engine.batching import Priority
from service.engine.framer import Framer, OnFrames
from service.engine.interface import EngineLike
from service.notes.events import Event
from service.notes.resume import ResumePoint
from service.notes.score import Score
from service.notes.tracker_settings import TrackerSettings
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, StreamOptions
from service.protocol.server_messages import Totals
from service.session.listening import Delay, listening, stated_delay, tuner, with_full_lookahead
from service.session.resume import Replay

OnEvents = Callable[[list[Event], int], None]

MAX_PENDING_WINDOWS = 4
_SLICE_SAMPLES = 1 << 15  # resampled at once: a large chunk must not block the event loop


class SessionState(Enum):
    OPEN = "open"  # takes audio
    FAILED = "failed"  # takes no more audio; to be finished or aborted
    FINISHED = "finished"  # all frames are out, all notes have ended
    ABORTED = "aborted"  # ended early, all notes have ended


class SessionStateError(RuntimeError):
    """A call that is not valid in the session's state."""


class TranscriptionSession:
    """Transcribes one performance.

    PCM bytes -> mono samples -> resampler -> ring -> windows -> engine -> tracker -> events.
    The events depend only on the audio and the options, not on chunk sizes, pace or priority.

    A call that raises loses no events: the ``finish`` or ``abort`` that must follow returns them.
    Always call one of the two: it frees the session's place in the engine.

    Not thread-safe: make all calls from one event loop. Concurrent ``push`` calls are processed in
    order of arrival.

    Attributes:
        config: of the model.
        delay: the stated delay of both kinds of events, for ``ready``.
        score: the notes and presses of the pedal that have ended.
        frame_s: seconds from frame to frame.
    """

    def __init__(
        self,
        engine: EngineLike,
        audio: AudioFormat,
        options: StreamOptions,
        *,
        priority: Priority = Priority.LIVE,
        max_notes: float = math.inf,
        max_pending_windows: int = MAX_PENDING_WINDOWS,
        on_frames: OnFrames | None = None,
        on_events: OnEvents | None = None,
        resume: ResumePoint | None = None,
    ) -> None:
        """Args:
            audio: format of the bytes given to ``push``.
            priority: windows of a FILE run together and wait for those of LIVE streams.
            max_notes: kept for the MIDI file.
            max_pending_windows: handed to the engine in one request when audio comes faster than
                real time.
            on_frames: called in order with the first frame and the probabilities [heads, n, 128] of
                every block, in anytime mode with their full look-ahead. They are views of whole
                windows: copy what outlives the call.
            on_events: called with the events of each window and the number of samples, at the sent
                rate and from the beginning, needed for them; used in evaluation.
            resume: where to continue a performance of another session; ``push`` then gets its audio
                from ``resume.from_sample`` on. Samples, frames, times and notes count from the
                beginning of the performance; ``score`` has what ends in this session.

        Raises:
            EngineClosedError: the engine accepts no more streams.
            OptionsError: the model does not distinguish the instruments of the options, or a
                session with these options cannot continue from this point.
        """
        self._audio = audio
        self._max_notes = max_notes
        self._priority = priority
        self._on_events = on_events
        self.config = config = engine.config
        model_rate_hz = config.sample_rate
        self._refill_hops = config.refill_hops
        self.frame_s = HOP / model_rate_hz
        self._frame_ms = 1000.0 * HOP / model_rate_hz
        self._ratio = RateRatio.of(audio.sample_rate_hz, model_rate_hz)
        settings = TrackerSettings.from_card(engine.card)
        self._listener, self._schedule = listening(config, options, settings)
        self._on_frames = on_frames and with_full_lookahead(on_frames, self._schedule)
        self._point = resume or ResumePoint()
        replay = self._replay_before(self._point.frames)
        replay.check(self._point, self._schedule.block_frames, self.frame_s)
        self._unneeded = replay.from_sample - self._point.from_sample  # samples to skip
        self._decoder = PcmDecoder(audio, self._point.from_sample, self._point.mix)
        self._resampler = Resampler(audio.sample_rate_hz, model_rate_hz, replay.first_sample)
        first_frame = self._schedule.first_frame(replay.first_block)
        self._listener.resume(first_frame, self._point)
        self._resampler_ms = 1000.0 * self._ratio.reach / audio.sample_rate_hz
        self.delay: Delay = stated_delay(
            options, config, settings, self._listener, self._resampler_ms
        )
        self._state = SessionState.OPEN
        self._input_ended = False  # by bad audio: what came before can still be finished
        self._turn = asyncio.Lock()
        self._received = self._point.from_sample
        self._dropped = 0
        self.score = Score(self._point.notes, self._point.sounding)
        self._pending: list[Event] = []
        self._tuner = tuner(config, options, replay, self._point)
        self._framer = Framer(
            engine,
            priority,
            self._schedule,
            replay.first_block,
            replay.first_sample,
            max_pending_windows,
            self._take_frames,
            self._tuner,
        )

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def incomplete(self) -> ProtocolError | None:
        """The fault of audio that ended within a sample."""
        if not (pending := self._decoder.pending_bytes):
            return None
        message = f"{pending} of the {self._audio.frame_bytes} bytes of its last sample"
        return ProtocolError(ErrorCode.ODD_BYTES, f"the audio ended with {message}")

    @property
    def late_frames(self) -> int:
        """How many frames after its own may still decide a frame."""
        return self._schedule.late_frames

    @property
    def replay_ms(self) -> float:
        """Maximum audio, in ms, between ``point`` and what has been transcribed."""
        frames = self._listener.history_frames + self._refill_hops
        frames += 3 * self._schedule.block_frames  # to whole blocks
        return 1000.0 * (HOP * frames + WINDOW) / self.config.sample_rate + self._held_ms + MIX_MS

    @property
    def totals(self) -> Totals:
        return Totals(
            notes=self.score.begun,
            frames=self.frames,
            audio_s=self._received / self._audio.sample_rate_hz,
            received_samples=self._received,
            dropped_samples=self._dropped,
            mix=self._decoder.mix,
        )

    @property
    def frames(self) -> int:
        """Frames that have left the engine, here or before the performance was resumed."""
        return max(self._framer.frames, self._point.frames)

    @property
    def point(self) -> ResumePoint:
        """Where another session can continue, given the events that this one has returned.

        Valid between two calls of ``push``.
        """
        if self._framer.frames <= self._point.frames:
            return self._point
        replay = self._replay_before(self._framer.frames)
        from_sample, mix = self._decoder.resumable(replay.from_sample)
        return ResumePoint(
            from_sample=from_sample,
            mix=mix,
            frames=self._framer.frames,
            notes=self.score.begun,
            sounding=self.score.sounding,
            belief=self._listener.belief,
            dynamics=self._listener.dynamics,
            pedal=self._listener.pedal,
            tuning=self._tuner.tuning(replay.tuning_sample),
            curves=self._listener.curves,
            free=self._listener.first_free_frames,
        )

    @property
    def behind_ms(self) -> float:
        """Audio pushed but not yet transcribed, in ms, beyond what the stated delay holds back."""
        received_ms = 1000.0 * self._received / self._audio.sample_rate_hz
        return max(0.0, received_ms - self._framer.frames * self._frame_ms - self._held_ms)

    @property
    def _held_ms(self) -> float:
        """Audio held back before it reaches the tracker, in ms."""
        held_frames = self._schedule.lookahead_hops + self._schedule.block_frames - 1
        return held_frames * self._frame_ms + self._resampler_ms

    async def push(self, data: bytes) -> list[Event]:
        """Process any number of PCM bytes and return the resulting events, in the order in which
        they become known (see ``service.notes.tracker``).

        Raises:
            BadAudioError: a sample is NaN or infinite. Everything before it was processed, and
                ``finish`` returns the events.
            EngineError: the model failed on this audio; ``finish`` closes the open notes.
            ProtocolError: more than ``max_notes`` notes; ``finish`` returns the rest.
            SessionStateError: the session no longer accepts audio.
        """
        return await self._take(lambda: self._decoder.decode(data))

    async def push_samples(self, samples: NDArray[np.float32]) -> list[Event]:
        """Like ``push`` for mono float32 samples at the format's rate, shape [n]."""
        values = samples.astype(np.float32, copy=False)[:, None]
        return await self._take(lambda: check_and_mix(values, self._received))

    async def finish(self) -> list[Event]:
        """Transcribe to the last sample and end all notes; idempotent.

        Raises:
            EngineError: the model failed; ``abort`` closes the open notes.
            SessionStateError: the session was aborted.
        """
        async with self._turn:
            if self._state is SessionState.FINISHED:
                return self._take_pending()
            if self._state is SessionState.ABORTED:
                raise SessionStateError("the session was aborted; it cannot be finished")
            if self._state is SessionState.FAILED and not self._input_ended:
                self._end(SessionState.FINISHED)  # frames are missing: run no more
                return self._take_pending()
            self._state = SessionState.FAILED  # unless this completes
            self._input_ended = False
            await self._framer.write(self._resampler.finish())
            await self._framer.finish()
            frames = self._framer.frames
            if frames < self._point.frames:  # the audio ended before the resume point
                self._note(self._listener.close())
            else:
                self._note(self._listener.finish(frames))
            self._end(SessionState.FINISHED)
            return self._take_pending()

    def abort(self) -> list[Event]:
        """Stop at once and end the open notes where they stand; safe in any state."""
        if self._state not in (SessionState.FINISHED, SessionState.ABORTED):
            self._end(SessionState.ABORTED)
        return self._take_pending()

    async def _take(self, decode: Callable[[], NDArray[np.float32]]) -> list[Event]:
        """One push, when its turn comes."""
        async with self._turn:
            if self._state is not SessionState.OPEN:
                raise SessionStateError(f"the session is {self._state.value} and takes no audio")
            fault: ProtocolError | None = None
            try:
                samples = decode()
            except BadAudioError as error:
                fault, samples = error, error.samples
                self._dropped += error.dropped
            self._received += len(samples)
            unneeded = min(self._unneeded, len(samples))
            self._unneeded -= unneeded
            samples = samples[unneeded:]
            self._state = SessionState.FAILED  # a fault or cancellation leaves a gap in the frames
            for start in range(0, len(samples), _SLICE_SAMPLES):
                piece = samples[start : start + _SLICE_SAMPLES]
                await self._framer.write(self._resampler.process(piece))
            if self._priority is Priority.LIVE:
                await self._framer.run()  # a file's windows wait for a full request
            if fault is None and self.score.ended > self._max_notes:
                message = f"more than {self._max_notes} notes in one session"
                fault = ProtocolError(ErrorCode.TOO_MANY_NOTES, message)
            if fault is not None:
                self._input_ended = True
                raise fault
            self._state = SessionState.OPEN
            return self._take_pending()

    def _replay_before(self, frames: int) -> Replay:
        history_frames = self._listener.history_frames
        return Replay.before(frames, self._schedule, self._ratio, history_frames, self._refill_hops)

    def _take_frames(self, first_frame: int, frames: NDArray[np.float32]) -> None:
        if self._state is SessionState.ABORTED:
            raise SessionStateError("the session was aborted while audio was transcribed")
        if self._on_frames is not None:
            self._on_frames(first_frame, frames)
        # The shift with which the block's first frame was read when it was new.
        raised = self._tuner.raised_cents(HOP * (first_frame + self.config.newest_hops))
        events = self._listener.push(first_frame, frames, self._schedule.block_frames, raised)
        if self._on_events is not None:
            block = first_frame // self._schedule.block_frames
            needed = self._ratio.inputs(self._schedule.end_sample(block))  # from the beginning
            self._on_events(events, min(self._received, needed))
        self._note(events)

    def _note(self, events: list[Event]) -> None:
        self._pending += events
        self.score.add(events)

    def _take_pending(self) -> list[Event]:
        events, self._pending = self._pending, []
        return events

    def _end(self, state: SessionState) -> None:
        self._state = state
        self._framer.close()
        self._note(self._listener.close())
