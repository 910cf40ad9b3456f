"""Tests of real networks in streams: streamed frames equal those of separate windows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import WINDOW, ModelConfig
from model.transcriber import TranscriptionModel
from service.engine.local import LocalEngine
from service.protocol.checkpoint import Checkpoint
from service.protocol.options import StreamOptions
from service.stream import stream as stream_module
from service.stream.stream import Stream
from service.stream.windows import WindowSchedule
from tests.fakes import play
from tests.networks import FILTERBANK, STRIDED, assert_same_outputs
from tests.service.streams import (
    audio_format,
    compute_pending,
    open_stream,
    to_bytes,
    transcribe_samples,
    transcribe_stream,
)

TOLERANCE = 1e-5  # the batch size may change the order of a sum
DECIMATED = 2e-4  # the filterbank applies long filters to decimated audio


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "SEGMENT_FRAMES", 128)


def stream_frames(
    transcriber: TranscriptionModel,
    samples: NDArray[np.float32],
    options: StreamOptions,
    chunk: int | None,
) -> NDArray[np.float32]:
    """Return probabilities [outputs, frames, 128] of samples at the model's rate: of a live stream
    in chunks of ``chunk`` samples, or of a recording in segments if it is None."""
    audio = audio_format(transcriber.config.sample_rate)
    with LocalEngine(transcriber, workers=3) as engine:
        if chunk is None:
            return transcribe_samples(engine, samples, audio.sample_rate_hz, options)[1]
        return transcribe_stream(engine, to_bytes(samples, audio), audio, options, [4 * chunk])[1]


@pytest.mark.parametrize("config", [FILTERBANK, STRIDED], ids=["filterbank", "strided"])
@pytest.mark.parametrize(
    "options",
    [
        StreamOptions(lookahead_ms=200, block_frames=16),
        StreamOptions(lookahead_ms=372, block_frames=1),
    ],
    ids=["200 ms", "372 ms"],
)
def test_streamed_frames_match_separate_windows(
    config: ModelConfig, options: StreamOptions
) -> None:
    transcriber = TranscriptionModel(config).eval()
    rate_hz = config.sample_rate
    samples = play([(60, 0.1, 0.4), (76, 0.2, 0.5)], 0.5, rate_hz)
    samples += 0.02 * np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32)
    live = stream_frames(transcriber, samples, options, 300)
    file = stream_frames(transcriber, samples, options, None)
    np.testing.assert_allclose(file, live, atol=TOLERANCE)

    schedule = WindowSchedule.of(options, config)
    length = config.context + WINDOW
    padding = np.zeros(length, np.float32)
    padded = np.concatenate([padding, samples, padding])
    windows = [
        padded[schedule.end_sample(j) : schedule.end_sample(j) + length]
        for j in range(schedule.blocks(len(samples)))
    ]
    direct = transcriber.predict(torch.from_numpy(np.stack(windows)))[:, :, schedule.positions]
    expected = np.concatenate(list(direct.numpy()), axis=1)[:, : schedule.frames(len(samples))]
    assert_same_outputs(config, live, expected, DECIMATED if config is FILTERBANK else TOLERANCE)


DETUNED = play(
    [(60.45, 0.1, 1.5), (64.45, 1.9, 4.3), (76.45, 0.3, 4.4)], 4.5, FILTERBANK.sample_rate
)


def seeded_filterbank() -> TranscriptionModel:
    torch.manual_seed(0)
    return TranscriptionModel(FILTERBANK).eval()


def test_estimated_tuning_shifts_later_frames() -> None:
    transcriber, options = seeded_filterbank(), StreamOptions()
    estimated = stream_frames(transcriber, DETUNED, options, None)
    fixed = stream_frames(transcriber, DETUNED, replace(options, tuning_hz=440.0), None)
    differ = (estimated != fixed).any(axis=(0, 2))
    assert not differ[:70].any()  # before the first estimate
    assert differ[150:350].all()


@settings(max_examples=3)
@given(
    chunk=st.integers(50, 30_000),
    block_frames=st.sampled_from([2, 3, 8, 16]),
    other_blocks=st.lists(st.sampled_from([1, 4, 16]), max_size=2),
    cut=st.floats(0.3, 0.9),
)
@example(chunk=3_000, block_frames=8, other_blocks=[], cut=0.6)  # the tuning is estimated by then
def test_live_recorded_and_resumed_frames_have_the_same_bits(
    chunk: int, block_frames: int, other_blocks: list[int], cut: float
) -> None:
    """Chunks, segments, other streams and the position of a resume change no bit, although the
    tuning changes in the recording."""
    transcriber, options = seeded_filterbank(), StreamOptions(block_frames=block_frames)
    rate_hz, samples = FILTERBANK.sample_rate, DETUNED
    recording = stream_frames(transcriber, samples, options, None)
    audio, frames = audio_format(rate_hz), dict[int, NDArray[np.float32]]()
    checkpoint = Checkpoint.start()

    def keep(first: int, probabilities: NDArray[np.float32]) -> None:
        for frame in range(first, first + probabilities.shape[1]):
            if frame >= checkpoint.frames:  # earlier frames are pre-roll
                frames[frame] = probabilities[:, frame - first]

    with LocalEngine(transcriber) as engine:
        others = [open_stream(engine, audio, StreamOptions(block_frames=n)) for n in other_blocks]
        states = [engine.open_stream() for _ in others]

        def feed(stream: Stream, start: int, end: int) -> None:
            features = engine.open_stream()
            for first in range(start, end, chunk):
                new = samples[first : min(first + chunk, end)]
                stream.feed_samples(new)
                compute_pending(engine, stream, features)
                for other, state in zip(others, states, strict=True):
                    other.feed_samples(new)
                    compute_pending(engine, other, state)
            if end == len(samples):
                stream.end()
                compute_pending(engine, stream, features)

        stream = open_stream(engine, audio, options, keep)
        feed(stream, 0, int(cut * len(samples)))
        checkpoint = stream.checkpoint
        stream = open_stream(engine, audio, options, keep, checkpoint)
        feed(stream, checkpoint.from_sample, len(samples))
    assert sorted(frames) == list(range(recording.shape[1]))
    for number, frame in frames.items():
        np.testing.assert_array_equal(frame, recording[:, number])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_matches_the_cpu() -> None:
    transcriber = seeded_filterbank()
    samples = play([(60, 0.1, 0.5)], 0.8, FILTERBANK.sample_rate)
    cpu = stream_frames(transcriber, samples, StreamOptions(), 300)
    gpu = stream_frames(transcriber.to("cuda"), samples, StreamOptions(), 300)
    np.testing.assert_allclose(gpu, cpu, atol=0.02)  # GPU convolutions use TF32
