"""The pipeline of one performance: from PCM to windows, and from their predictions to events.

    stream.feed(data)
    while (due := stream.next_windows()) is not None:
        events += stream.process_predictions(compute(runner, features, due))

A stream has no I/O, clock, thread or lock. The events depend only on the audio and the options.
They do not depend on the sizes of chunks, their timing, or the number of windows per call. Only
wide windows, which a caller may request for a stream that is behind, change them slightly.
"""

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, WINDOW, ModelConfig
from service.audio.pcm import MIX_MS, BadAudioError, PcmDecoder
from service.audio.resample import RateRatio, Resampler
from service.notes.events import Event, PedalEvent
from service.notes.note_collector import NoteCollector
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import AudioFormat, StreamOptions
from service.protocol.server_messages import Totals
from service.stream.resume import check_checkpoint
from service.stream.setup import OnFrames, build_detector, build_tuner, guaranteed_delay
from service.stream.windows import (
    MAX_WINDOWS_PER_BATCH,
    SEGMENT_FRAMES,
    PendingWindows,
    SampleBuffer,
)

MAX_NOTES = 200_000  # maximum number per session or recording, which bounds the memory


class Stream:
    """Transcribes one performance.

    Attributes:
        decoder: decoder of the PCM bytes.
        delay: guaranteed maximum delays of note_on and note_off.
        collector: completed notes and pedal presses.
        frame_s: seconds per frame.
        late_frames: see ``WindowSchedule``.
        positions, wide_positions: positions to read from each window, and from each wide window
            (``WindowSchedule.positions``).
        segment_windows: maximum number of windows in a segment of a recording.
        preroll_windows: number of windows that restore the network's streaming state.
        error: invalid sample, which ended the audio, or too many notes; else None. The audio before
            an invalid sample is still transcribed.
    """

    def __init__(
        self,
        config: ModelConfig,
        settings: TrackerSettings,
        audio: AudioFormat,
        options: StreamOptions,
        *,
        max_notes: float = math.inf,
        segments: bool = False,
        on_frames: OnFrames | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Raises ProtocolError if the model does not distinguish the requested instruments, or if
        the stream cannot continue from ``checkpoint``.

        Args:
            audio: format of the bytes passed to ``feed``.
            max_notes: maximum number of completed notes. Exceeding it sets ``error``.
            segments: True if the caller computes segments of ``segment_windows`` windows.
            on_frames: called when more frames have their full look-ahead. Its arguments are the
                index of the first of them and their probabilities [heads, n, 128], a view.
            checkpoint: point at which to continue the performance of another stream. The audio must
                start at its ``from_sample``. Samples, frames, times and notes count from the
                start of the performance. ``collector`` has only the notes that end in this stream.
        """
        self.config = config
        self._audio = audio
        self._max_notes = max_notes
        rate_hz = config.sample_rate
        self.frame_s = HOP / rate_hz
        self._ratio = RateRatio.of(audio.sample_rate_hz, rate_hz)
        self._detector, self._schedule = build_detector(config, options, settings)
        self._wide = self._schedule.widened()
        self._on_frames = on_frames
        self.late_frames = self._schedule.late_frames
        self._start = (checkpoint or Checkpoint.start()).known_state()
        first_block, first_detected = self._schedule.first_blocks(self._start.frames)
        first_sample = self._schedule.first_sample(first_block)
        from_sample = self._ratio.first_input(first_sample)
        check_checkpoint(self._start, self._schedule.block_frames, from_sample, self.frame_s)
        self._skip_samples = from_sample - self._start.from_sample
        self.decoder = PcmDecoder(audio, self._start.from_sample, self._start.mix)
        self._resampler = Resampler(audio.sample_rate_hz, rate_hz, first_sample)
        self._first_block = self._blocks = first_block  # next block for `next_windows`
        self._frames = self._schedule.first_frame(first_block)  # next frame to process
        self._end_frame: int | None = None  # set by `end`: frames from here on are dropped
        self._end_blocks = 0
        self._first_detected_frame = self._schedule.first_frame(first_detected)
        self._detector.resume(self._first_detected_frame, self._start)
        filter_ms = 1000.0 * self._ratio.reach / audio.sample_rate_hz
        held_frames = self._schedule.lookahead_hops + self._schedule.block_frames - 1
        # Delay in ms until audio can reach the event detector.
        self._held_ms = 1000.0 * held_frames * self.frame_s + filter_ms
        self.delay = guaranteed_delay(options, config, settings, self._detector, filter_ms)
        self._received = self._start.from_sample
        self._chunks: list[NDArray[np.float32]] = []  # samples that are not yet resampled
        self.positions, self.wide_positions = self._schedule.positions, self._wide.positions
        self.segment_windows = SEGMENT_FRAMES // len(range(FRAMES)[self.positions])
        self.preroll_windows = self._schedule.preroll_blocks
        segment_windows = self.segment_windows + self.preroll_windows
        max_windows = segment_windows if segments else MAX_WINDOWS_PER_BATCH
        buffered_samples = WINDOW + (max_windows - 1) * self._schedule.block_frames * HOP
        self._buffer = SampleBuffer(first_sample, buffered_samples)
        self._tuner = build_tuner(config, options, self._schedule, first_block, self._start.tuning)
        self._shifts: deque[int] = deque(maxlen=max_windows)  # filterbank shifts of recent windows
        frame, pressed = self._start.frames, None
        if self._start.pedal:
            pressed = PedalEvent(True, frame, frame * self.frame_s)
        self.collector = NoteCollector(self._start.notes, self._start.sounding, pressed)
        self._dropped = 0
        self.error: ProtocolError | None = None
        self._closed = False

    # -- audio in ---------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Process PCM bytes of any length. An invalid sample (NaN, infinite, or far beyond full
        scale) sets ``error`` and ends the audio. Bytes after the end of the audio are ignored."""
        if self._end_frame is not None:
            return
        try:
            self._append(self.decoder.decode(data))
        except BadAudioError as error:
            self._end_at_error(error)

    def feed_samples(self, samples: NDArray[np.float32]) -> None:
        """Process samples, [n] or [n, channels], at the input rate. Raises BadAudioError for an
        invalid sample. The samples before it are still processed, and the audio ends there."""
        values = samples if samples.ndim == 2 else samples[:, None]
        try:
            self._append(self.decoder.check_and_mix(values.astype(np.float32, copy=False)))
        except BadAudioError as error:
            self._end_at_error(error)
            raise

    def end(self) -> None:
        """End the audio. All remaining windows become pending, padded with silence. Idempotent."""
        if self._end_frame is not None:
            return
        self._resample()
        self._buffer.append(self._resampler.finish())
        total = self._buffer.end
        self._end_frame = max(self._schedule.frames(total), self._frames)
        self._end_blocks = max(self._blocks, self._schedule.blocks(total))
        missing = max(0, self._schedule.end_sample(self._end_blocks - 1) - total)
        self._buffer.append(np.zeros(missing, np.float32))

    # -- windows out ------------------------------------------------------------------------------

    @property
    def pending_windows(self) -> int:
        """Number of windows whose samples have arrived, but which have not been returned yet."""
        if self._end_frame is not None:
            return self._end_blocks - self._blocks
        complete = self._schedule.complete(self._ratio.outputs(self._received))
        return max(0, complete - self._blocks)

    @property
    def can_widen(self) -> bool:
        """True if all blocks of a wide window are pending, and no earlier stream decided them."""
        blocks = self._wide.block_frames // self._schedule.block_frames
        is_new = self._schedule.first_frame(self._blocks) >= self._start.frames
        return is_new and 1 < blocks <= self.pending_windows

    def next_windows(
        self, max_count: int = MAX_WINDOWS_PER_BATCH, preroll: int = 0, wide: bool = False
    ) -> PendingWindows | None:
        """Return at most ``max_count`` pending windows, preceded by at most ``preroll`` earlier
        windows; None if no window is pending. Pass the predictions of the pending windows to
        ``process_predictions``, in order. wide: return one wide window, which requires
        ``can_widen``. It costs little more than the window of one block."""
        schedule = self._wide if wide else self._schedule
        hops, step = schedule.block_frames, schedule.block_frames * HOP
        blocks = hops // self._schedule.block_frames  # number of blocks per window
        count = 1 if wide else min(max_count, self.pending_windows)
        if not count:
            return None
        self._resample()
        self._blocks += count * blocks
        end = self._schedule.end_sample(self._blocks - 1)
        self._tuner.write(self._buffer.advance(end))
        self._shifts += [self._tuner.at(end - n * step).shift for n in reversed(range(count))]
        windows = count + min(preroll, self._blocks - count * blocks - self._first_block)
        samples = self._buffer.between(end - WINDOW - (windows - 1) * step, end)
        shifts = tuple(self._shifts)[-windows:]
        return PendingWindows(samples, count, hops, schedule.positions, windows - count, shifts)

    # -- probabilities in, events out -------------------------------------------------------------

    def process_predictions(self, probabilities: NDArray[np.float32]) -> list[Event]:
        """Return the events decided by the probabilities of the next windows, float32
        [windows, heads, positions, 128]."""
        events: list[Event] = []
        new_frames = probabilities.shape[2] - self._schedule.repeated_frames
        for frames in probabilities:  # [heads, positions, PITCHES]
            # A window's offset is the offset of the filters that computed its first new frame.
            filtered = HOP * (self._frames + self.config.min_lookahead_hops)
            offset_cents = self._tuner.offset_cents(filtered)
            if self._end_frame is not None:
                oldest = self._frames - self._schedule.repeated_frames
                frames = frames[:, : max(0, self._end_frame - oldest)]
            if self._on_frames is not None:
                late = self.late_frames
                missing = max(0, late - self._frames)  # at the start of a stream
                first = self._schedule.repeated_frames - late
                settled = frames[:, first + missing : first + new_frames]
                self._on_frames(self._frames - late + missing, settled)
            if self._frames >= self._first_detected_frame:
                events += self._detector.push(self._frames, frames, new_frames, offset_cents)
            self._frames += new_frames
        return self._record(events)

    def finish(self) -> list[Event]:
        """Return the last events, which end all notes. Call this after ``end``, once all windows
        have been processed. It has the same effect as ``close`` if windows are pending, or if the
        stream has not reached the checkpoint that it resumes."""
        frames = self._until_end(self._frames)
        if self._closed or frames < self._start.frames or self.pending_windows:
            return self.close()
        return self._record(self._detector.finish(self.frames)) + self.close()

    def close(self) -> list[Event]:
        """Return the events that end the sounding notes at the last decided frame. Idempotent."""
        self._closed = True
        return self._record(self._detector.close())

    @property
    def replay_ms(self) -> float:
        """Maximum duration, in ms, of the audio that another stream needs for ``checkpoint``."""
        frames = self._detector.history_frames + self.config.preroll_hops
        frames += 3 * self._schedule.block_frames  # rounding to blocks
        return 1000.0 * (HOP * frames + WINDOW) / self.config.sample_rate + self._held_ms + MIX_MS

    @property
    def totals(self) -> Totals:
        return Totals(
            notes=self.collector.started_count,
            frames=self.frames,
            audio_s=self._received / self._audio.sample_rate_hz,
            received_samples=self._received,
            dropped_samples=self._dropped,
            mix=self.decoder.downmix.reported_mix,
        )

    @property
    def frames(self) -> int:
        """Number of processed frames of the performance, including frames of earlier streams."""
        return max(self._until_end(self._frames), self._start.frames)

    @property
    def processed_blocks(self) -> int:
        """Number of blocks from the start of the performance to the next block to process."""
        return self._frames // self._schedule.block_frames

    @property
    def processed_samples(self) -> int:
        """Number of samples, at the input rate, that the processed frames depend on."""
        block = self.processed_blocks - 1
        needed = self._ratio.inputs(self._schedule.end_sample(block)) if block >= 0 else 0
        return min(self._received, needed)

    @property
    def checkpoint(self) -> Checkpoint:
        """Checkpoint from which another stream can continue after the events returned so far."""
        if self._frames <= self._start.frames:
            return self._start
        first_block, _ = self._schedule.first_blocks(self._frames)
        needed = self._ratio.first_input(self._schedule.first_sample(first_block))
        from_sample, mix = self.decoder.restart_position(needed)
        return Checkpoint(
            session_id=self._start.session_id,
            from_sample=from_sample,
            frames=self._frames,
            notes=self.collector.started_count,
            sounding=self.collector.sounding,
            tuning=self._tuner.at(self._schedule.tuning_sample(first_block)),
            mix=mix,
            **self._detector.state,
        )

    @property
    def behind_ms(self) -> float:
        """Audio in ms that is not processed although its look-ahead and block are complete."""
        received_ms = 1000.0 * self._received / self._audio.sample_rate_hz
        return max(0.0, received_ms - 1000.0 * self._frames * self.frame_s - self._held_ms)

    def _until_end(self, frames: int) -> int:
        return frames if self._end_frame is None else min(frames, self._end_frame)

    def _append(self, samples: NDArray[np.float32]) -> None:
        self._received += len(samples)
        skipped = min(self._skip_samples, len(samples))
        self._skip_samples -= skipped
        self._chunks.append(samples[skipped:])

    def _end_at_error(self, error: BadAudioError) -> None:
        self._dropped += error.dropped
        self._append(error.samples)
        self.error = error
        self.end()

    def _resample(self) -> None:
        """Resample all waiting chunks together, because each resampler call has a fixed cost."""
        if self._chunks:
            self._buffer.append(self._resampler.process(np.concatenate(self._chunks)))
            self._chunks = []

    def _record(self, events: list[Event]) -> list[Event]:
        self.collector.add(events)
        if self.error is None and self.collector.completed_count > self._max_notes:
            message = f"more than {self._max_notes:.0f} notes"
            self.error = ProtocolError(ErrorCode.TOO_MANY_NOTES, message)
        return events
