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
    for seed in range(30):
        sound = make(2000, SAMPLE_RATE, np.random.default_rng(seed))
        assert sound.shape == (2000,)
        assert np.isfinite(sound).all()
