"""Sounds without notes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.music.synth.acoustics import noise
from training.music.synth.acoustics.speech import speech

Maker = Callable[[int, int, np.random.Generator], NDArray[np.float32]]


@pytest.mark.parametrize("make", [noise.bursts, noise.drums, noise.sweep, noise.murmur, speech])
def test_every_draw_is_finite_sound_of_the_length_asked_for(make: Maker) -> None:
    for seed in range(300):
        sound = make(2000, SAMPLE_RATE, np.random.default_rng(seed))
        assert sound.shape == (2000,)
        assert np.isfinite(sound).all()


def test_a_sweep_stays_on_no_pitch() -> None:
    for seed in range(20):
        sound = noise.sweep(4 * SAMPLE_RATE, SAMPLE_RATE, np.random.default_rng(seed))
        turns = np.flatnonzero(np.diff(np.signbit(sound)))
        hertz = SAMPLE_RATE / 2 / np.diff(turns)
        octaves = np.ptp(np.log2(np.convolve(hertz, np.ones(8) / 8, "valid")))
        assert octaves > 0.5


def test_a_beat_comes_again() -> None:
    sound = np.abs(noise.drums(20 * SAMPLE_RATE, SAMPLE_RATE, np.random.default_rng(2)))
    envelope = sound[: len(sound) // 100 * 100].reshape(-1, 100).mean(axis=1)
    envelope -= envelope.mean()
    likeness = np.correlate(envelope, envelope, "full")[len(envelope) - 1 :]
    assert likeness[100:].max() > 0.3 * likeness[0]
