from __future__ import annotations

import numpy as np
import pytest

from training.music.synth.material import random_notes


@pytest.mark.parametrize("seed", range(15))
def test_random_notes_are_playable(seed: int) -> None:
    notes = random_notes(20.0, 30, 100, np.random.default_rng(seed))
    assert len(notes) > 5
    assert (np.diff(notes.onset) >= 0).all()
    assert notes.onset.min() >= 0
    assert notes.onset.max() < 20
    assert (notes.offset > notes.onset).all()
    assert notes.pitch.min() >= 30
    assert notes.pitch.max() <= 100
    assert notes.velocity.min() >= 1
    assert notes.velocity.max() <= 127


def test_every_pitch_and_interval_comes_up() -> None:
    rng = np.random.default_rng(0)
    pitches: set[int] = set()
    intervals: set[int] = set()
    for _ in range(60):
        notes = random_notes(25.0, 21, 108, rng)
        pitches |= set(notes.pitch.tolist())
        together = np.abs(notes.onset[:, None] - notes.onset[None, :]) < 0.02
        distance = np.abs(notes.pitch[:, None] - notes.pitch[None, :])
        intervals |= set(distance[together].tolist())
    assert pitches == set(range(21, 109))
    assert set(range(1, 25)) <= intervals
