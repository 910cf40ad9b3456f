"""Recordings through the same stream as live audio: files, or arrays for evaluation."""

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from pydantic import BaseModel

from service.audio.pcm import BadAudioError
from service.notes.events import Event, Note, PedalPress
from service.notes.tracker_settings import TrackerSettings
from service.protocol.faults import ProtocolError
from service.protocol.midi_file import DEFAULT_TEMPO
from service.protocol.options import FILE_OPTIONS, AudioFormat, StreamOptions
from service.protocol.server_messages import Totals
from service.score.analysis import analyse
from service.score.beats import BeatHints
from service.stream.setup import OnFrames
from service.stream.stream import Stream
from service.stream.windows import Computer, EngineError, Probabilities

if TYPE_CHECKING:
    from service.audio.decode import AudioDecoder
    from service.audio.sandbox import SandboxedDecoder

MOST_UNDER_WAY = 16
"""Segments of a recording that are computed at once, however many workers there are: each holds up
to 24 MB, and the tuning is remembered for 13 minutes."""


class FileProgress(BaseModel):
    """Progress in a file; ``fraction``, 0 to 1, is None if its header states no length."""

    type: Literal["progress"] = "progress"
    frames: int
    time_s: float
    fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """The result of a recording; ``notes`` by onset time, then pitch; ``beats`` as JSON."""

    notes: list[Note]
    pedal: list[PedalPress]
    totals: Totals
    midi: bytes
    beats: Sequence[dict[str, float]] = ()

    @property
    def body(self) -> dict[str, Any]:
        """The values of a JSON answer, without what was chosen (``setup.chosen``)."""
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


FileItem = Event | FileProgress | Performance


class RecordedStream:
    """A recording's windows, computed some segments ahead and heard in order."""

    def __init__(
        self,
        computer: Computer,
        audio: AudioFormat,
        options: StreamOptions,
        max_notes: float = math.inf,
        on_frames: OnFrames | None = None,
    ) -> None:
        self.stream = Stream(
            computer.config,
            TrackerSettings.from_card(computer.card),
            audio,
            options,
            max_notes=max_notes,
            segments=True,
            on_frames=on_frames,
        )
        self._computer = computer
        self._asked: deque[Future[Probabilities]] = deque()

    def heard(self, rest: bool = False) -> Iterator[Probabilities]:
        """The answers that are to be heard now, so that enough segments are under way. rest: also
        of windows that make no whole segment, and of all that is under way."""
        while self.stream.due >= (1 if rest else self.stream.segment_windows):
            due = self.stream.take(self.stream.segment_windows, self.stream.refill_windows)
            assert due is not None
            self._asked.append(self._computer.submit(due))
            yield from self._answers(min(self._computer.workers, MOST_UNDER_WAY))
        if rest:
            yield from self._answers(0)

    def _answers(self, under_way: int) -> Iterator[Probabilities]:
        while len(self._asked) > under_way:
            yield self._asked.popleft().result()

    def close(self) -> None:
        for future in self._asked:
            future.cancel()


def transcribe_file(
    file: BinaryIO,
    computer: Computer,
    options: StreamOptions = FILE_OPTIONS,
    *,
    max_duration_s: float | None = None,
    pcm: AudioFormat | None = None,
    max_notes: float = math.inf,
    on_frames: OnFrames | None = None,
    hints: BeatHints | None = None,
    sandboxed: bool = False,
) -> Generator[FileItem, None, None]:
    """Transcribe an audio file as it is decoded.

    Yields note events as they become known, progress, and at the end one Performance. If the file
    turns out to be damaged, or the model fails, it yields what was transcribed before, with its
    Performance, and then raises. Close the generator unless it is read to its end.

    Args:
        file: seekable binary file, at its beginning; not closed.
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
        segments = RecordedStream(computer, decoder.audio, options, max_notes, on_frames)
        stream = segments.stream
        fault: Exception | None = None
        try:
            try:
                for block in decoder:
                    stream.feed_samples(block)
                    for probabilities in segments.heard():
                        yield from stream.hear(probabilities)
                        yield _progress(stream, decoder.stated_duration_s)
                    if stream.fault is not None:
                        break
            except BadAudioError as error:  # of the stream
                fault = error
            except (ProtocolError, EngineError) as error:
                fault = error
            try:
                if not isinstance(fault, EngineError):
                    stream.end()
                    for probabilities in segments.heard(rest=True):
                        yield from stream.hear(probabilities)
                        yield _progress(stream, decoder.stated_duration_s)
            except EngineError as error:
                fault = fault or error
            yield from stream.finish()
            score = stream.score
            score.settle_instruments()
            totals = stream.totals.model_copy(update={"mix": decoder.mix})
            found = None if hints is None else analyse(score.notes, hints)
            yield Performance(
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


def _progress(stream: Stream, duration_s: float | None) -> FileProgress:
    time_s = stream.frames * stream.frame_s
    fraction = None if duration_s is None else min(1.0, time_s / duration_s)
    return FileProgress(frames=stream.frames, time_s=time_s, fraction=fraction)
