"""Recordings through the same stream as live audio: files, or arrays for evaluation."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from model.config import ModelConfig
from service.notes.events import Event, Note, PedalPress
from service.protocol.errors import ProtocolError
from service.protocol.midi_file import DEFAULT_TEMPO
from service.protocol.options import FILE_OPTIONS, AudioFormat, StreamOptions
from service.protocol.server_messages import Totals
from service.score.analysis import analyse
from service.score.beats import BeatHints
from service.stream.probe import PROBE_S, Probe, raise_error, split_start
from service.stream.segment_pipeline import FileProgress, SegmentPipeline
from service.stream.setup import OnFrames
from service.stream.windows import EngineError, InferenceEngine

if TYPE_CHECKING:
    from service.audio.decode import AudioDecoder
    from service.audio.sandbox import SandboxedDecoder


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """Model that transcribes the recording."""

    config: ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionResult:
    """The result of a recording; ``notes`` by onset time, then pitch; ``beats`` as JSON."""

    notes: list[Note]
    pedal: list[PedalPress]
    totals: Totals
    midi: bytes
    beats: Sequence[dict[str, float]] = ()

    def to_json(self) -> dict[str, Any]:
        """The values of a JSON answer, without what was chosen (``setup.describe_options``)."""
        return {
            "notes": [
                {name: value for name, value in asdict(note).items() if value is not None}
                for note in self.notes
            ],
            "pedal": [asdict(press) for press in self.pedal],
            "duration_s": self.totals.audio_s,
            "frames": self.totals.frames,
            "mix": self.totals.mix,
        }


RecordingItem = Event | FileProgress | ChosenModel | TranscriptionResult


def transcribe_file(
    file: BinaryIO,
    engine: InferenceEngine,
    options: StreamOptions = FILE_OPTIONS,
    *,
    piano: Callable[[], InferenceEngine] | None = None,
    max_duration_s: float | None = None,
    pcm: AudioFormat | None = None,
    max_notes: float = math.inf,
    on_frames: OnFrames | None = None,
    hints: BeatHints | None = None,
    sandboxed: bool = False,
) -> Generator[RecordingItem, None, None]:
    """Transcribe an audio file as it is decoded.

    Yields the ChosenModel, note events as they become known, progress, and at the end one
    TranscriptionResult. If the file is corrupt, or the model fails, yields what was transcribed
    before, its TranscriptionResult, and then raises. Close the generator unless you exhaust it.

    Args:
        file: seekable binary file, at its beginning; not closed.
        piano: returns the model for pianos. It transcribes the recording if the start sounds like a
            piano and the machine is fast enough (see MIN_PIANO_SHARE, MAX_PIANO_LOAD). Events are
            then first yielded after PROBE_S of audio.
        max_duration_s: longest audio accepted.
        pcm: the format of a file that is raw PCM without a header.
        max_notes, on_frames: see ``Stream``.
        hints: what is known of the beat, to find that of the MIDI file; None leaves it at 120 BPM.
        sandboxed: decode an untrusted file in a child process (``service.audio.sandbox``).

    Raises:
        ProtocolError: not an audio file, empty, too long, damaged, more than ``max_notes``, invalid
            samples, or a sample rate outside of 8,000 to 384,000 Hz (see its ``code``).
        EngineError: the model failed.
    """
    with _open_decoder(file, max_duration_s, pcm, sandboxed) as decoder:
        duration_s = decoder.header_duration_s

        def open_stream(engine: InferenceEngine, on_frames: OnFrames | None) -> SegmentPipeline:
            return SegmentPipeline(engine, decoder.audio, options, max_notes, on_frames)

        blocks, probe = iter(decoder), None
        if piano is None:
            segments = open_stream(engine, on_frames)
        else:
            start, blocks = split_start(blocks, int(PROBE_S * decoder.audio.sample_rate_hz))
            probe = Probe(open_stream, engine, start, duration_s)
            if probe.error is not None:
                blocks = raise_error(probe.error)
            elif probe.is_piano:
                probe = probe.repeated_by(piano())
            segments = probe.segments
        stream = segments.stream
        fault: Exception | None = None
        try:
            yield ChosenModel(segments.config)
            if probe is not None:
                probe.frames.release(on_frames)
                yield from probe.items
            try:
                for block in blocks:
                    stream.feed_samples(block)
                    yield from segments.items(duration_s)
                    if stream.fault is not None:
                        break
            except (ProtocolError, EngineError) as error:
                fault = error
            try:
                if not isinstance(fault, EngineError):
                    stream.end()
                    yield from segments.items(duration_s, flush=True)
            except EngineError as error:
                fault = fault or error
            yield from stream.finish()
            score = stream.score
            score.settle_instruments()
            totals = stream.totals.model_copy(update={"mix": decoder.mix})
            found = None if hints is None else analyse(score.notes, hints)
            yield TranscriptionResult(
                notes=score.notes,
                pedal=score.pedal,
                totals=totals,
                midi=score.midi(found.tempo if found else DEFAULT_TEMPO),
                beats=found.said if found else (),
            )
            if fault := fault or stream.fault:
                raise fault
        finally:
            segments.close()


def _open_decoder(
    file: BinaryIO, max_duration_s: float | None, pcm: AudioFormat | None, sandboxed: bool
) -> "AudioDecoder | SandboxedDecoder":
    from service.audio import decode, sandbox  # with FFmpeg

    if sandboxed and sandbox.HAS_LIMITS:
        return sandbox.SandboxedDecoder(file, max_duration_s)
    return decode.AudioDecoder(file, max_duration_s, pcm)
