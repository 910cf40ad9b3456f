"""Tests of batches of windows, silenced edges, and worker processes."""

import contextlib
import itertools
import multiprocessing
import os
import signal

import numpy as np
import pytest

from model.config import FRAMES, HOP, SAMPLE_RATE, WINDOW
from training.music.notes import notes_of
from training.music.synth.config import SynthConfig
from training.music.synth.dataset import (
    Batch,
    Excerpt,
    empty_batch,
    generate_batches,
    relative_velocities,
    silence_edge,
    synth_stream,
)
from training.music.synth.render import Rendered
from training.music.targets import PEDAL_UNKNOWN, segment_labels


def equal_batches(a: Batch, b: Batch) -> bool:
    targets = zip(a.targets, b.targets, strict=True)
    return np.array_equal(a.audio, b.audio) and all(np.array_equal(x, y) for x, y in targets)


def test_excerpts_without_notes_have_no_labels(
    synth_config: SynthConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.music.synth.excerpts.BACKGROUND", 1.0)
    batches = list(itertools.islice(generate_batches(synth_config, 16, 0, seed=0), 3))
    assert any(batch.audio.any() for batch in batches)
    for _, targets in batches:
        assert (targets.pedal == PEDAL_UNKNOWN).all()
        assert not any(target.any() for target in targets._replace(pedal=np.zeros(0, np.uint8)))


def test_a_window_has_the_labels_of_its_samples() -> None:
    rng = np.random.default_rng(0)
    notes = notes_of([0.5], [1.2], [60], 77)
    audio = np.arange(3 * SAMPLE_RATE, dtype=np.float32)
    excerpt = Excerpt(Rendered(audio, notes), rng)
    relative = notes.replaced(velocity=relative_velocities(audio, notes.velocity))
    batch = empty_batch(2)
    for hop in (0, excerpt.positions - 1):
        excerpt.write(hop, batch, 1)
        start = int(batch.audio[1, 0])
        np.testing.assert_array_equal(batch.audio[1], np.arange(start, start + WINDOW))
        labels = segment_labels(relative, SAMPLE_RATE, start)
        for target, expected in zip(batch.targets, labels, strict=True):
            np.testing.assert_array_equal(target[1], expected)
    assert not batch.audio[0].any()


def test_silence_extends_excerpts_shorter_than_a_window() -> None:
    notes = notes_of([0.1], [0.2], [60])
    short = Rendered(np.full(WINDOW // 2, 0.5, np.float32), notes)
    excerpt = Excerpt(short, np.random.default_rng(0))
    assert excerpt.positions == 1
    batch = empty_batch(1)
    excerpt.write(0, batch, 0)
    assert np.array_equal(batch.audio[0, : WINDOW // 2 - HOP], short.audio[HOP:])
    assert not batch.audio[0, WINDOW // 2 :].any()
    assert batch.targets.frame[0, :, 60].any()


def test_windows_include_the_preceding_audio() -> None:
    audio = np.arange(1, 3 * SAMPLE_RATE, dtype=np.float32)
    excerpt = Excerpt(Rendered(audio, notes_of([], [], [])), np.random.default_rng(0))
    batch = empty_batch(2, context=5 * HOP)
    excerpt.write(2, batch, 0)
    excerpt.write(9, batch, 1)
    assert not batch.audio[0, : 3 * HOP].any()
    for row in (batch.audio[0, 3 * HOP :], batch.audio[1]):
        np.testing.assert_array_equal(np.diff(row), 1)
    assert batch.audio[1, 0] == audio[excerpt.phase + 4 * HOP]


@pytest.mark.parametrize("seed", range(5))
def test_silenced_edges_have_no_labels(seed: int) -> None:
    batch = empty_batch(1)
    batch.audio[:] = 1
    for target in batch.targets:
        target[:] = 1
    silence_edge(batch, 0, np.random.default_rng(seed))
    audio_at_frames = batch.audio[0, HOP * np.arange(1, FRAMES + 1)].astype(np.uint8)
    np.testing.assert_array_equal(batch.targets.frame[0, :, 60], audio_at_frames)
    np.testing.assert_array_equal(batch.targets.onset[0, :, 60], audio_at_frames)


def test_workers_are_deterministic_and_stop(synth_config: SynthConfig) -> None:
    """Workers ignore signals, because the trainer must save first."""
    other_processes = multiprocessing.active_children()
    with contextlib.closing(synth_stream(synth_config, 4, 0, workers=2, seed=3)) as stream:
        batches = list(itertools.islice(stream, 2))
        workers = [p for p in multiprocessing.active_children() if p not in other_processes]
        for process in workers:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(process.pid or 0, number)
        batches += itertools.islice(stream, 2)
    assert len(workers) >= 2
    assert not any(process.is_alive() for process in workers)
    for worker in range(2):
        expected = itertools.islice(generate_batches(synth_config, 4, 0, [3, worker]), 2)
        assert all(equal_batches(a, b) for a, b in zip(batches[worker::2], expected, strict=True))
    assert not any(equal_batches(a, b) for a, b in itertools.combinations(batches, 2))
    with pytest.raises(StopIteration):
        next(stream)
