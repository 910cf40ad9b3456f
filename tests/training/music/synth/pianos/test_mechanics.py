from __future__ import annotations

from pathlib import Path

import numpy as np

from model.config import SAMPLE_RATE
from training.music.synth.pianos.mechanics import LEVEL_DB, Mechanics, load_mechanics, random_noise
from training.music.synth.scores import Notes


def test_keys_and_pedal_sound_where_they_move_and_far_below_the_notes() -> None:
    click = np.ones(100, np.float32)
    mechanics = Mechanics(np.array([40, 80]), [click, -click], [click], [click])
    notes = Notes(
        np.array([0.1, 0.2]),
        np.array([2.0, 2.0]),
        np.array([41, 79], np.int16),
        np.full(2, 80, np.float32),
        np.zeros(2, np.int16),
        released=np.array([0.5, 0.8]),
    )
    pedal = np.array([[0.3, 1.2, 1.0]])
    rng = np.random.default_rng(0)
    noise = random_noise(mechanics, notes, pedal, 2 * SAMPLE_RATE, SAMPLE_RATE, rng)
    heard = np.flatnonzero(np.abs(np.diff(np.concatenate([[0], np.sign(noise)]))))[::2]
    np.testing.assert_allclose(heard / SAMPLE_RATE, [0.3, 0.5, 0.8, 1.2], atol=1e-3)
    assert noise[int(0.505 * SAMPLE_RATE)] > 0 > noise[int(0.805 * SAMPLE_RATE)]
    assert 0 < np.abs(noise).max() < 10 ** ((LEVEL_DB[1] + 15) / 20)


def test_a_bank_without_noises_has_none(tmp_path: Path) -> None:
    assert load_mechanics(tmp_path) is None
