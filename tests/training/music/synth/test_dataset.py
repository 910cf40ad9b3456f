"""Batches of windows, mixed excerpts, and relative velocities."""

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


def same(a: Batch, b: Batch) -> bool:
    targets = zip(a.targets, b.targets, strict=True)
    return np.array_equal(a.audio, b.audio) and all(np.array_equal(x, y) for x, y in targets)


def test_excerpts_without_notes_have_no_labels(
    synth_config: SynthConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.music.synth.excerpts.BACKGROUND", 1.0)
    batches = list(itertools.islice(generate_batches(synth_config, 16, 0), 3))
    assert any(batch.audio.any() for batch in batches)
    for _, targets in batches:
        assert (targets.pedal == PEDAL_UNKNOWN).all()
        assert not any(target.any() for target in targets._replace(pedal=np.zeros(0, np.uint8)))


def test_a_window_has_the_labels_of_its_samples() -> None:
    rng = np.random.default_rng(0)
    notes = notes_of([0.5], [1.2], [60], 77)
    audio = np.arange(3 * SAMPLE_RATE, dtype=np.float32)
    excerpt = Excerpt(Rendered(audio, notes), rng)
    heard = notes.moved(velocity=relative_velocities(audio, notes.velocity))
    batch = empty_batch(2)
    for hop in (0, excerpt.positions - 1):
        excerpt.write(hop, batch, 1)
        start = int(batch.audio[1, 0])
        np.testing.assert_array_equal(batch.audio[1], np.arange(start, start + WINDOW))
        labels = segment_labels(heard, SAMPLE_RATE, start)
        for target, want in zip(batch.targets, labels, strict=True):
            np.testing.assert_array_equal(target[1], want)
    assert not batch.audio[0].any()


def test_a_window_comes_with_the_audio_before_it() -> None:
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
def test_silenced_edges_are_silent_in_both(seed: int) -> None:
    batch = empty_batch(1)
    batch.audio[:] = 1
    for target in batch.targets:
        target[:] = 1
    silence_edge(batch, 0, np.random.default_rng(seed))
    described = batch.audio[0, HOP * np.arange(1, FRAMES + 1)]
    np.testing.assert_array_equal(batch.targets.frame[0, :, 60], described.astype(np.uint8))
    np.testing.assert_array_equal(batch.targets.onset[0, :, 60], described.astype(np.uint8))


def test_workers_are_deterministic_and_stop(synth_config: SynthConfig) -> None:
    others = multiprocessing.active_children()  # processes of other tests
    with contextlib.closing(synth_stream(synth_config, 4, 2, seed=3)) as stream:
        got = list(itertools.islice(stream, 2))
        processes = [p for p in multiprocessing.active_children() if p not in others]
        for process in processes:  # signals reach all processes, but the consumer must save first
            for stop in (signal.SIGINT, signal.SIGTERM):
                os.kill(process.pid or 0, stop)
        got += itertools.islice(stream, 2)
    assert len(processes) >= 2
    assert not any(process.is_alive() for process in processes)
    for worker in range(2):
        want = list(itertools.islice(generate_batches(synth_config, 4, [3, worker]), 2))
        assert all(same(a, b) for a, b in zip(got[worker::2], want, strict=True))
    assert not any(same(a, b) for a, b in itertools.combinations(got, 2))
    with pytest.raises(StopIteration):
        next(stream)
