from __future__ import annotations

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from tests.training.music.synth.pianos.sounds import contact_s, press
from training.music.synth.pianos.pedal import (
    changed_pedal,
    contact_time,
    held_by_pedal,
    invented_pedal,
    pedal_depth,
)
from training.music.synth.scores import Notes


def test_invented_pedal_presses_do_not_overlap() -> None:
    onset = np.arange(0.1, 30, 0.25)
    size = len(onset)
    notes = Notes(
        onset,
        onset + 0.2,
        np.full(size, 60, np.int16),
        np.full(size, 80, np.float32),
        np.zeros(size, np.int16),
    )
    pedal = invented_pedal(notes, np.random.default_rng(0))
    assert len(pedal) > 5
    assert (pedal[:, 1] > pedal[:, 0]).all()
    assert (pedal[1:, 0] > pedal[:-1, 1]).all()


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


def test_half_a_pedal_is_half_a_damper() -> None:
    free, half, down = (
        contact_time(pedal_depth(press((-1, 5, d)), 22050, SAMPLE_RATE), SAMPLE_RATE)
        for d in (0.0, 0.5, 1.0)
    )
    assert down[-1] == 0
    assert 2.5 < free[-1] / half[-1] < 6


def test_a_quick_change_of_the_pedal_leaves_some_of_the_sound() -> None:
    def left(up_s: float) -> float:
        return float(contact_s(press((-1, 1, 1), (1 + up_s, 3, 1)), 2.0)[-1])

    assert left(0.02) < 0.02 < left(0.06) < left(0.3)
