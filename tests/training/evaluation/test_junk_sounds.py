"""Sounds without notes: level, pace and pitch as specified."""

from __future__ import annotations

import numpy as np
import pytest

from training.evaluation.junk_sounds import NOISE_DB, RATE_HZ, ROOM_DB, SOUNDS

SECONDS = 4


def make(name: str, seconds: float = SECONDS) -> np.ndarray:
    return SOUNDS[name](round(seconds * RATE_HZ), np.random.default_rng(0))


@pytest.mark.parametrize("name", SOUNDS)
def test_every_sound_is_as_long_as_asked_and_within_full_scale(name: str) -> None:
    for seconds in (0.01, 1):
        sound = make(name, seconds)
        assert sound.shape == (round(seconds * RATE_HZ),)
        assert sound.dtype == np.float32
        assert np.isfinite(sound).all()
        assert np.abs(sound).max() <= 1
    assert np.array_equal(make(name, 0.5), make(name, 0.5))


@pytest.mark.parametrize(
    ("name", "level_db"),
    [("white noise", NOISE_DB), ("pink noise", NOISE_DB), ("room noise", ROOM_DB)],
)
def test_noise_has_its_level(name: str, level_db: float) -> None:
    rms = float(np.sqrt(np.mean(make(name).astype(float) ** 2)))
    assert 20 * np.log10(rms) == pytest.approx(level_db, abs=0.1)
