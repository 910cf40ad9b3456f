from __future__ import annotations

import numpy as np
import pytest

from training.music.synth.pianos.pedal import (
    changed_pedal,
    held_by_pedal,
)
from training.music.synth.scores import Notes


def test_half_a_pedal_holds_notes_from_the_middle_on() -> None:
    notes = Notes(
        np.array([0.0, 0.0, 2.0]),
        np.array([0.5, 1.1, 2.5]),
        np.array([60, 64, 60], np.int16),
        np.full(3, 80, np.float32),
        np.zeros(3, np.int16),
    )
    pedal = np.array([[0.4, 0.7, 1.0], [0.7, 0.9, 0.6], [1.0, 1.5, 0.4], [2.6, 3.0, 1.0]])
    held = held_by_pedal(notes, pedal)
    assert held.offset.tolist() == [0.9, 1.1, 2.5]  # held; depth 0.4 is too little; too late
    assert held.released.tolist() == [0.5, 1.1, 2.5]


def test_long_presses_are_changed_and_short_ones_kept() -> None:
    out = changed_pedal(np.array([[1.0, 3.0], [4.0, 24.0]]), 8.0)
    assert out[0].tolist() == [1.0, 3.0]
    assert len(out) == 4
    assert out[-1, 1] == pytest.approx(24.0)
    assert (out[1:, 0] > out[:-1, 1]).all()
    assert changed_pedal(np.zeros((0, 2)), 8.0).shape == (0, 2)
