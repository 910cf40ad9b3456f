"""Recordings through the same session as live streams: files, or arrays for evaluation."""

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from model.config import PITCHES
from service.audio.decode import AudioDecoder
from service.audio.pcm import BadAudioError
from service.engine.batching import EngineError, Priority
from service.engine.framer import OnFrames
from service.engine.interface import EngineLike
from service.notes.events import Event, Note, PedalPress
from service.protocol.faults import ProtocolError
from service.protocol.options import FILE_OPTIONS, AudioFormat, Encoding, StreamOptions
from service.protocol.server_messages import Totals
from service.session.session import MAX_PENDING_WINDOWS, TranscriptionSession


class FileProgress(BaseModel):
    """Progress in a file; ``fraction``, 0 to 1, is None if its header states no length."""

    type: Literal["progress"] = "progress"
    frames: int
    time_s: float
    fraction: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """The result of a recording; ``notes`` by onset time, then pitch."""

    notes: list[Note]
    pedal: list[PedalPress]
    totals: Totals
    midi: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The values of a JSON answer, without what was chosen (``listening.chosen``)."""
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


async def transcribe_file(
    file: BinaryIO,
    engine: EngineLike,
    options: StreamOptions = FILE_OPTIONS,
    *,
    max_duration_s: float | None = None,
    pcm: AudioFormat | None = None,
    max_notes: float = math.inf,
    max_pending_windows: int = MAX_PENDING_WINDOWS,
    on_frames: OnFrames | None = None,
) -> AsyncGenerator[FileItem, None]:
    """Transcribe an audio file as it is decoded, at lower priority than live streams.

    Yields note events as they become known, progress several times a second of audio, and at the
    end one Performance. If the file turns out to be damaged, or the model fails, it yields what was
    transcribed before, with its Performance, and then raises. Close the generator
    (``contextlib.aclosing``) unless it is read to its end.

    Args:
        file: seekable binary file, at its beginning; read in a thread, not closed.
        max_duration_s: longest audio accepted.
        pcm: the format of a file that is raw PCM without a header.
        max_notes, max_pending_windows, on_frames: see ``TranscriptionSession``.

    Raises:
        ProtocolError: not an audio file, empty, too long, damaged, more than ``max_notes``, a
            sample that is NaN or infinite, or a sample rate outside of 8,000 to 192,000 Hz (see its
            ``code``).
        EngineError: the model failed.
    """
    with await _open(file, max_duration_s, pcm) as decoder:
        session = TranscriptionSession(
            engine,
            decoder.audio,
            options,
            priority=Priority.FILE,
            max_notes=max_notes,
            max_pending_windows=max_pending_windows,
            on_frames=on_frames,
        )
        fault: Exception | None = None
        try:
            try:
                while (block := await asyncio.to_thread(decoder.read)) is not None:
                    for event in await session.push_samples(block):
                        yield event
                    yield _progress(session, decoder.stated_duration_s)
            except BadAudioError as error:
                fault = error
                for event in await session.push_samples(error.samples):
                    yield event
            except (ProtocolError, EngineError) as error:
                fault = error
            try:
                rest = await session.finish()
            except EngineError as error:
                fault = fault or error
                rest = session.abort()
            for event in rest:
                yield event
            score = session.score
            score.settle()
            midi = await asyncio.to_thread(score.midi)
            totals = session.totals.model_copy(update={"mix": decoder.mix})
            yield Performance(notes=score.notes, pedal=score.pedal, totals=totals, midi=midi)
            if fault is not None:
                raise fault
        finally:
            session.abort()


async def _open(
    file: BinaryIO, max_duration_s: float | None, pcm: AudioFormat | None
) -> AudioDecoder:
    """Opens the file in a thread, which has finished with it when this ends, even if cancelled."""
    opening = asyncio.ensure_future(asyncio.to_thread(AudioDecoder, file, max_duration_s, pcm))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])  # the caller closes the file next
        if opening.exception() is None:
            opening.result().close()
        raise


def _progress(session: TranscriptionSession, duration_s: float | None) -> FileProgress:
    time_s = session.frames * session.frame_s
    fraction = None if duration_s is None else min(1.0, time_s / duration_s)
    return FileProgress(frames=session.frames, time_s=time_s, fraction=fraction)


class ArrayTranscription(NamedTuple):
    """Notes, the probabilities that they were found in, and pedal presses.

    Attributes:
        probabilities: float32 [heads, frames, 128].
        known_s: for each note, seconds of audio needed to know its beginning.
    """

    notes: list[Note]
    heads: tuple[str, ...]
    probabilities: NDArray[np.float32]
    pedal: list[PedalPress]
    known_s: NDArray[np.float64]

    @property
    def frame_probabilities(self) -> NDArray[np.float32]:
        """[frames, 128]: the probability that a note sounds."""
        return self.probabilities[self.heads.index("frame")]


def transcribe_array(
    samples: NDArray[np.float32],
    rate: int,
    engine: EngineLike,
    options: StreamOptions = FILE_OPTIONS,
) -> ArrayTranscription:
    """Transcribe mono samples, shape [n], at ``rate`` Hz, through the streaming path.

    For scripts and evaluation; do not call from a running event loop.

    Raises:
        BadAudioError: a sample is NaN or infinite.
        OptionsError: the rate is out of range.
    """
    heads = engine.config.outputs
    kept = [np.zeros((len(heads), 0, PITCHES), np.float32)]
    known_s: dict[int, float] = {}  # by note

    def remember(events: list[Event], needed_samples: int) -> None:
        for event in events:
            if event.kind == "note_on":
                known_s[event.note_id] = needed_samples / rate

    async def run() -> TranscriptionSession:
        session = TranscriptionSession(
            engine,
            AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=rate),
            options,
            priority=Priority.FILE,
            # Copied, for a block is a view of its whole window.
            on_frames=lambda _, probabilities: kept.append(probabilities.copy()),
            on_events=remember,
        )
        try:
            await session.push_samples(samples)
            await session.finish()
        finally:
            session.abort()
        return session

    score = asyncio.run(run()).score
    notes = score.notes
    end_s = len(samples) / rate  # for notes known only at the end
    return ArrayTranscription(
        notes,
        heads,
        np.concatenate(kept, axis=1),
        score.pedal,
        np.array([known_s.get(note.note_id, end_s) for note in notes]),
    )
