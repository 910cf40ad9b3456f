"""Transcribes arrays with the service's stream. Returns notes and probabilities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.events import Note, PedalPress
from service.protocol.options import FILE_OPTIONS, AudioFormat, Encoding, StreamOptions
from service.stream.recording import SegmentPipeline
from service.stream.windows import InferenceEngine


class ArrayTranscription(NamedTuple):
    """Notes, the probabilities from which they were decoded, and pedal presses."""

    notes: list[Note]
    heads: tuple[str, ...]  # names of the rows of ``probabilities``
    probabilities: NDArray[np.float32]  # [heads, frames, 128]
    pedal: list[PedalPress]
    needed_s: NDArray[np.float64]  # [notes], seconds of audio processed before each note_on

    @property
    def frame_probabilities(self) -> NDArray[np.float32]:
        """Probability that each pitch sounds, [frames, 128]."""
        return self.probabilities[self.heads.index("frame")]


def transcribe_array(
    samples: NDArray[np.float32],
    rate: int,
    engine: InferenceEngine,
    options: StreamOptions = FILE_OPTIONS,
    heads: tuple[str, ...] = (),
) -> ArrayTranscription:
    """Transcribe mono samples, shape [n], at ``rate`` Hz. Raises BadAudioError for a sample that is
    not finite or far beyond full scale, ProtocolError for a rate out of range, and EngineError if
    the model fails.

    heads: the heads whose probabilities to return; by default all. One head of an hour needs 0.16
    GB.
    """
    heads = heads or engine.config.outputs
    rows = [engine.config.outputs.index(head) for head in heads]
    blocks = [np.zeros((len(heads), 0, PITCHES), np.float32)]
    needed_s: dict[int, float] = {}  # by note ID
    segments = SegmentPipeline(
        engine,
        AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=rate),
        options,
        # A copy, because with a view the complete window would stay in memory.
        on_frames=lambda _, probabilities: blocks.append(probabilities[rows]),
    )
    stream = segments.stream
    try:
        stream.feed_samples(samples)
        stream.end()
        for probabilities in segments.segments(flush=True):
            for window in probabilities:
                for event in stream.process_predictions(window[None]):
                    if event.kind == "note_on":
                        needed_s[event.note_id] = stream.processed_samples / rate
        stream.finish()
    finally:
        segments.close()
    notes, pedal = stream.collector.notes, stream.collector.pedal
    decided_s = np.array([needed_s.get(note.note_id, len(samples) / rate) for note in notes])
    return ArrayTranscription(notes, heads, np.concatenate(blocks, axis=1), pedal, decided_s)
