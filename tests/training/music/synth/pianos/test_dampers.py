from __future__ import annotations

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from tests.training.music.synth.pianos.sounds import around, contact_s, press, tone
from training.music.synth.pianos.dampers import Dampers, damp, random_dampers, time_constants

CLEAN = Dampers(residue=1e-3, delay_s=0.0)


def test_the_highest_strings_have_no_dampers() -> None:
    rng = np.random.default_rng(0)
    drawn = [random_dampers(rng) for _ in range(100)]
    assert {d.highest for d in drawn} == {88, 89, 90, 91}
    for dampers in drawn:
        constants = time_constants(dampers, np.arange(21, 109))
        assert np.isfinite(constants[: dampers.highest - 20]).all()
        assert np.isinf(constants[dampers.highest - 20 :]).all()


@pytest.mark.parametrize("power", [2, 3])
def test_high_partials_are_damped_first(power: int) -> None:
    dampers = Dampers(residue=1e-3, treble_power=power)
    fundamental, tenth = tone(48, 1.0), tone(48 + 12 * np.log2(10), 1.0)
    contact = contact_s(press(), 1.0)
    for sound in (fundamental, tenth):
        damp(sound, contact, 0.15, 440 * 2 ** (-21 / 12), dampers, SAMPLE_RATE)
    assert around(fundamental, 0.2) == pytest.approx(-3 - 8.7 * 0.2 / 0.15, abs=2.5)
    assert around(tenth, 0.2) < around(fundamental, 0.2) - 4


def test_something_rings_on_after_the_damper() -> None:
    clean, leaky = tone(60, 1.0), tone(60, 1.0)
    contact = contact_s(press(), 1.0)
    damp(clean, contact, 0.05, 262, CLEAN, SAMPLE_RATE)
    damp(leaky, contact, 0.05, 262, Dampers(residue=0.1), SAMPLE_RATE)
    assert around(leaky, 0.06) == pytest.approx(around(clean, 0.06), abs=3)
    assert around(leaky, 0.3) > around(clean, 0.3) + 15
