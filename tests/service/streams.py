"""Streams with the model of pure tones: their input and their events."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from model.transcriber import FeatureStream
from service.audio.decode import SampleArray
from service.engine.local import LocalEngine
from service.notes.events import Event, Note
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Checkpoint
from service.protocol.options import FILE_OPTIONS, AudioFormat, Encoding, Mode, StreamOptions
from service.stream.recording import transcribe_recording
from service.stream.setup import OnFrames
from service.stream.stream import Stream
from service.stream.windows import MAX_WINDOWS_PER_BATCH, InferenceEngine
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, play

FRAME_S = HOP / FAKE_RATE_HZ
OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=50, block_frames=1),
    StreamOptions(lookahead_ms=200, block_frames=16),
    StreamOptions(lookahead_ms=372, block_frames=32),
    StreamOptions(lookahead_ms=372, block_frames=1),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200),
    StreamOptions(mode=Mode.ANYTIME, block_frames=1),
    StreamOptions(mode=Mode.ANYTIME, lookahead_ms=372, block_frames=8),
]
MELODY = [(69, 0.1, 0.4), (81, 0.25, 0.6), (69, 0.5, 0.8), (93, 0.9, 1.2), (57, 0.9, 1.2)]


def audio_format(
    rate_hz: int = 44_100, encoding: Encoding = Encoding.PCM_F32LE, channels: int = 1
) -> AudioFormat:
    return AudioFormat(encoding=encoding, sample_rate_hz=rate_hz, channels=channels)


def to_bytes(samples: NDArray[np.float32], audio: AudioFormat) -> bytes:
    wide = np.repeat(samples[:, None], audio.channels, axis=1)
    if audio.encoding is Encoding.PCM_S16LE:
        return (wide * 32_767).astype("<i2").tobytes()
    return wide.astype("<f4").tobytes()


def random_performance(rate_hz: int, seed: int, duration_s: float = 4.0) -> NDArray[np.float32]:
    """Return random notes of all lengths, some held for several seconds, with faint noise."""
    rng = np.random.default_rng(seed)
    notes = []
    for pitch in FAKE_PITCHES:
        onset_s = rng.uniform(0, 1)
        while onset_s < duration_s:
            offset_s = onset_s + rng.exponential(0.6)
            notes.append((pitch, onset_s, offset_s))
            onset_s = offset_s + rng.uniform(0, 0.4)
    samples = play(notes, duration_s, rate_hz)
    samples *= rng.uniform(0.5, 1, len(samples) // 9000 + 1).repeat(9000)[: len(samples)]
    return samples + 0.01 * rng.standard_normal(len(samples)).astype(np.float32)


def transcribe_stream(
    engine: LocalEngine,
    data: bytes,
    audio: AudioFormat,
    options: StreamOptions | None = None,
    sizes: Sequence[int] = (),
    max_windows: int = MAX_WINDOWS_PER_BATCH,
) -> tuple[list[Event], NDArray[np.float32]]:
    """Return the events and the frames [outputs, n, 128] of a stream. ``data`` arrives in chunks
    whose sizes cycle through ``sizes``, or at once without sizes. Each batch has at most
    ``max_windows`` windows."""
    frames = [np.zeros((len(engine.config.outputs), 0, PITCHES), np.float32)]
    stream = open_stream(engine, audio, options, lambda _, block: frames.append(block.copy()))
    features = engine.open_stream()
    events: list[Event] = []
    start, turn = 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        stream.feed(data[start : start + size])
        events += compute_pending(engine, stream, features, max_windows)
        start, turn = start + size, turn + 1
    stream.end()
    events += compute_pending(engine, stream, features, max_windows) + stream.finish()
    return events, np.concatenate(frames, axis=1)


def open_stream(
    engine: LocalEngine,
    audio: AudioFormat,
    options: StreamOptions | None = None,
    on_frames: OnFrames | None = None,
    checkpoint: Checkpoint | None = None,
) -> Stream:
    settings = TrackerSettings.from_card(engine.card)
    return Stream(
        engine.config,
        settings,
        audio,
        options or StreamOptions(),
        on_frames=on_frames,
        checkpoint=checkpoint,
    )


def compute_pending(
    engine: LocalEngine,
    stream: Stream,
    features: FeatureStream,
    max_windows: int = MAX_WINDOWS_PER_BATCH,
) -> list[Event]:
    """Process all pending windows and return their events."""
    events: list[Event] = []
    while (pending := stream.next_windows(max_windows)) is not None:
        events += stream.process_predictions(engine.compute(features, pending))
    return events


def paired_notes(events: list[Event]) -> list[tuple[int, float, float]]:
    """Return (pitch, onset_s, offset_s) of all notes, sorted by pitch. Assert that every note has
    an onset and an offset."""
    ons = {e.note_id: e for e in events if e.kind == "note_on"}
    offs = {e.note_id: e for e in events if e.kind == "note_off"}
    assert ons.keys() == offs.keys()
    assert len(events) == 2 * len(ons)
    return sorted((ons[i].pitch, ons[i].time_s, offs[i].time_s) for i in ons)


def transcribe_samples(
    engine: InferenceEngine,
    samples: NDArray[np.float32],
    rate_hz: int,
    options: StreamOptions = FILE_OPTIONS,
) -> tuple[list[Note], NDArray[np.float32]]:
    """Return the notes and the frames [outputs, n, 128] of a recording, computed in segments."""
    frames = [np.zeros((len(engine.config.outputs), 0, PITCHES), np.float32)]

    recording = SampleArray(samples, rate_hz)
    *_, last = transcribe_recording(
        recording, engine, options, on_frames=lambda _, block: frames.append(block.copy())
    )
    assert last.result is not None
    return last.result.notes, np.concatenate(frames, axis=1)
