"""Transcribes recordings, files or arrays, by the same stream as live audio."""

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from service.notes.events import Event, Note, PedalPress
from service.notes.note_collector import midi_file
from service.protocol.errors import ProtocolError
from service.protocol.midi_file import DEFAULT_TEMPO, Tempo
from service.protocol.options import FILE_OPTIONS, StreamOptions
from service.protocol.server_messages import Totals
from service.stream.segment_pipeline import FileProgress, SegmentPipeline
from service.stream.setup import OnFrames
from service.stream.windows import EngineError, InferenceEngine

Samples = NDArray[np.float32]

if TYPE_CHECKING:
    from service.audio.decode import AudioDecoder
    from service.audio.samples import SampleArray
    from service.audio.sandbox import SandboxedDecoder


@dataclass(frozen=True, slots=True)
class OpenedRecording:
    """``title`` is the title tag of the file, or empty."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionResult:
    """Result of a recording. ``notes`` are sorted by onset time, then pitch. ``title``: tag of the
    file."""

    notes: list[Note]
    pedal: list[PedalPress]
    totals: Totals
    title: str = ""

    def midi(self, tempo: Tempo = DEFAULT_TEMPO) -> bytes:
        """Return a Standard MIDI File."""
        return midi_file(self.notes, self.pedal, tempo)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a JSON response, without those of ``describe_options``."""
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


RecordingItem = OpenedRecording | Event | FileProgress | TranscriptionResult


class _Blocks:
    """Blocks of a decoder up to its first error, which ``error`` then has."""

    def __init__(self, decoder: Iterable[Samples]) -> None:
        self._decoder = decoder
        self.error: ProtocolError | None = None

    def __iter__(self) -> Iterator[Samples]:
        try:
            yield from self._decoder
        except ProtocolError as error:
            self.error = error


def transcribe_recording(
    recording: "BinaryIO | SampleArray",
    engine: InferenceEngine,
    options: StreamOptions = FILE_OPTIONS,
    *,
    max_duration_s: float | None = None,
    max_notes: float = math.inf,
    on_frames: OnFrames | None = None,
    sandboxed: bool = False,
) -> Generator[RecordingItem, None, None]:
    """Transcribe a recording while it is decoded.

    Yields the OpenedRecording, events as they are decided, progress, and at the end one
    TranscriptionResult. If a file is corrupt, or the model fails, the generator yields the events
    and the TranscriptionResult of the audio before, and then raises. Close the generator unless
    you exhaust it.

    Args:
        recording: samples, or a seekable binary file at its start, which is not closed.
        max_duration_s: maximum duration.
        max_notes, on_frames: see ``Stream``.
        sandboxed: True to decode a file in a child process (``service.audio.sandbox``).

    Raises:
        ProtocolError: not an audio file, empty, too long, corrupt, more than ``max_notes``, invalid
            samples, or a sample rate outside of 4,000 to 384,000 Hz (see its ``code``).
        EngineError: the model failed.
    """
    with _open_decoder(recording, max_duration_s, sandboxed) as decoder:
        duration_s = decoder.header_duration_s
        segments = SegmentPipeline(engine, decoder.audio, options, max_notes, on_frames)
        stream, blocks = segments.stream, _Blocks(decoder)
        failure: Exception | None = None
        try:
            yield OpenedRecording(decoder.title)
            try:
                yield from _transcribe_blocks(blocks, segments, duration_s)
            except EngineError as error:
                failure = error
            yield from stream.finish()
            collector = stream.collector
            collector.settle_instruments()
            totals = stream.totals.model_copy(update={"mix": decoder.mix})
            yield TranscriptionResult(
                notes=collector.notes,
                pedal=collector.pedal,
                totals=totals,
                title=decoder.title,
            )
            if failure := failure or blocks.error or stream.error:
                raise failure
        finally:
            segments.close()


def _transcribe_blocks(
    blocks: Iterable[Samples], segments: SegmentPipeline, duration_s: float | None
) -> Iterator[Event | FileProgress]:
    """Transcribe the blocks until the last, or until an error of the stream."""
    stream = segments.stream
    for block in blocks:
        stream.feed_samples(block)
        yield from segments.items(duration_s)
        if stream.error is not None:
            break
    stream.end()
    yield from segments.items(duration_s, flush=True)


def _open_decoder(
    recording: "BinaryIO | SampleArray", max_duration_s: float | None, sandboxed: bool
) -> "AudioDecoder | SandboxedDecoder":
    from service.audio import decode, samples, sandbox  # loads FFmpeg

    if sandboxed and sandbox.HAS_LIMITS and not isinstance(recording, samples.SampleArray):
        return sandbox.SandboxedDecoder(recording, max_duration_s)
    return decode.AudioDecoder(recording, max_duration_s)
