"""Transcribes recordings (files or arrays) with the same stream as live audio."""

import math
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from pydantic import BaseModel

from service.notes.events import Event, Note, PedalPress
from service.notes.note_collector import midi_file
from service.notes.tracker_settings import TrackerSettings
from service.protocol.errors import ProtocolError
from service.protocol.options import FILE_OPTIONS, AudioFormat, StreamOptions
from service.protocol.server_messages import Totals
from service.protocol.tempo import DEFAULT_TEMPO, Tempo
from service.stream.setup import OnFrames
from service.stream.stream import Stream
from service.stream.windows import (
    EngineError,
    InferenceEngine,
    Probabilities,
)

if TYPE_CHECKING:
    from service.audio.decode import AudioDecoder, SampleArray
    from service.audio.sandbox import SandboxedDecoder

# Maximum number of segments of a recording in flight. Each needs up to 24 MB. Together they must
# last less than 13 minutes, because the tuner stores no older estimates.
MAX_SEGMENTS_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionResult:
    """Transcription of a recording. ``notes`` are sorted by onset time, then pitch."""

    notes: list[Note]
    pedal: list[PedalPress]
    totals: Totals
    title: str = ""

    def midi(self, tempo: Tempo = DEFAULT_TEMPO) -> bytes:
        return midi_file(self.notes, self.pedal, tempo)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a JSON response, except ``chords`` and the fields of
        ``describe_options``."""
        names = [field.name for field in fields(Note)]
        notes = []
        for note in self.notes:  # ``asdict`` takes 4 to 13 times as long
            values = {name: getattr(note, name) for name in names}
            notes.append({name: value for name, value in values.items() if value is not None})
        return {
            "notes": notes,
            "pedal": [asdict(press) for press in self.pedal],
            "duration_s": self.totals.audio_s,
            "frames": self.totals.frames,
            "mix": self.totals.mix,
        }


class FileProgress(BaseModel):
    """Progress of a recording. ``fraction``, 0 to 1, is None if the duration is unknown."""

    type: Literal["progress"] = "progress"
    frames: int
    time_s: float
    fraction: float | None


class RecordingStep(NamedTuple):
    """Events of a part of a recording, and then the progress or, at the end, the result. ``title``
    is the title tag of the file, or empty."""

    title: str
    events: list[Event]
    progress: FileProgress | None = None
    result: TranscriptionResult | None = None


class SegmentPipeline:
    """Computes a recording in segments, several at once, and returns the results in order.

    The first half of the network computes the windows of a stream one after the other, so a single
    stream would use only one core. However, the streaming state depends only on the last
    ``ModelConfig.preroll_hops`` hops. Each segment therefore starts with a pre-roll: earlier
    windows, whose results are dropped. All other results equal those of a single pass bit for bit::

        windows    0 .............. 63 | 64 ............ 127 | 128 ...
        worker 1   ####################
        worker 2                ++++++++ ###################             + pre-roll
        worker 1                                     ++++++++ ########## ...
    """

    def __init__(
        self,
        engine: InferenceEngine,
        audio: AudioFormat,
        options: StreamOptions,
        max_notes: float = math.inf,
        on_frames: OnFrames | None = None,
    ) -> None:
        self.stream = Stream(
            engine.config,
            TrackerSettings.from_card(engine.card),
            audio,
            options,
            max_notes=max_notes,
            segments=True,
            on_frames=on_frames,
        )
        self._engine = engine
        self._in_flight: deque[Future[Probabilities]] = deque()

    def steps(
        self, duration_s: float | None, flush: bool = False
    ) -> Iterator[tuple[list[Event], FileProgress]]:
        """Submit segments like ``segments``, but yield their events, and the progress after each.
        duration_s: duration of the recording, or None if unknown."""
        for probabilities in self.segments(flush):
            events = self.stream.process_predictions(probabilities)
            frames, time_s = self.stream.frames, self.stream.frames * self.stream.frame_s
            fraction = None if duration_s is None else min(1.0, time_s / duration_s)
            yield events, FileProgress(frames=frames, time_s=time_s, fraction=fraction)

    def segments(self, flush: bool = False) -> Iterator[Probabilities]:
        """Submit the complete segments. Yield the oldest results when more segments are in flight
        than the engine has workers. flush: also submit an incomplete segment and yield the rest."""
        stream, limit = self.stream, min(self._engine.workers, MAX_SEGMENTS_IN_FLIGHT)
        while stream.pending_windows >= (1 if flush else stream.segment_windows):
            due = stream.next_windows(stream.segment_windows, stream.preroll_windows)
            assert due is not None
            self._in_flight.append(self._engine.submit(due))
            while len(self._in_flight) > limit:
                yield self._in_flight.popleft().result()
        while flush and self._in_flight:
            yield self._in_flight.popleft().result()

    def close(self) -> None:
        """Cancel the segments in flight."""
        for future in self._in_flight:
            future.cancel()


def transcribe_recording(
    recording: "BinaryIO | SampleArray",
    engine: InferenceEngine,
    options: StreamOptions = FILE_OPTIONS,
    *,
    max_duration_s: float | None = None,
    max_notes: float = math.inf,
    on_frames: OnFrames | None = None,
    sandboxed: bool = False,
) -> Generator[RecordingStep, None, None]:
    """Transcribe a recording while it is decoded.

    Yields steps with the progress, and at the end one step with the result. If an error occurs
    after the file has been opened, the generator still yields the events and the result of the
    audio before the error, and then raises. Close the generator if you do not exhaust it.

    Args:
        recording: samples, or a seekable binary file at its start. The file is not closed.
        max_duration_s: maximum duration, or None.
        max_notes, on_frames: see ``Stream``.
        sandboxed: True to decode a file in a child process on Linux (``service.audio.sandbox``).

    Raises:
        ProtocolError: the recording is empty, too long, corrupt or not audio, or has invalid
            samples, an unsupported sample rate, or too many notes (see its ``code``).
        EngineError: the model failed.
    """
    with _open_decoder(recording, max_duration_s, sandboxed) as decoder:
        duration_s, title = decoder.header_duration_s, decoder.title
        segments = SegmentPipeline(engine, decoder.audio, options, max_notes, on_frames)
        stream, collector = segments.stream, segments.stream.collector
        failure: Exception | None = None
        try:
            try:
                try:
                    for block in decoder:
                        stream.feed_samples(block)
                        for step in segments.steps(duration_s):
                            yield RecordingStep(title, *step)
                        if stream.error is not None:
                            break
                except ProtocolError as error:  # the rest of the recording cannot be used
                    failure = error
                stream.end()
                for step in segments.steps(duration_s, flush=True):
                    yield RecordingStep(title, *step)
            except EngineError as error:
                failure = error
            events = [*stream.finish(), *collector.settle_instruments()]
            totals = stream.totals.model_copy(update={"mix": decoder.mix})
            result = TranscriptionResult(
                notes=collector.notes, pedal=collector.pedal, totals=totals, title=title
            )
            yield RecordingStep(title, events, result=result)
            if failure := failure or stream.error:
                raise failure
        finally:
            segments.close()


def _open_decoder(
    recording: "BinaryIO | SampleArray", max_duration_s: float | None, sandboxed: bool
) -> "AudioDecoder | SandboxedDecoder":
    from service.audio import decode, sandbox  # loads FFmpeg

    if sandboxed and sandbox.HAS_LIMITS and not isinstance(recording, decode.SampleArray):
        return sandbox.SandboxedDecoder(recording, max_duration_s)
    return decode.AudioDecoder(recording, max_duration_s)
