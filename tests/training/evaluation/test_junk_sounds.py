"""Noise without notes is as loud as specified."""

from __future__ import annotations

import numpy as np
import pytest

from training.evaluation.junk_sounds import NOISE_DB, RATE_HZ, ROOM_DB, SOUNDS


@pytest.mark.parametrize(
    ("name", "level_db"),
    [("white noise", NOISE_DB), ("pink noise", NOISE_DB), ("room noise", ROOM_DB)],
)
def test_noise_has_its_level(name: str, level_db: float) -> None:
    sound = SOUNDS[name](4 * RATE_HZ, np.random.default_rng(0))
    rms = float(np.sqrt(np.mean(sound.astype(float) ** 2)))
    assert 20 * np.log10(rms) == pytest.approx(level_db, abs=0.1)
