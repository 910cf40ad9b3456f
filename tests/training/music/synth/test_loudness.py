"""Velocities as heard: gain moves all of them together."""

import numpy as np
import pytest

from training.music.synth.dataset import DYNAMIC_DB, TYPICAL_DB, heard_velocities

RATE_HZ = 11_025
PLAYED = np.array([30, 0, 60, 45], np.float32)  # 0: unknown


def passage(level_db: float) -> np.ndarray:
    """Two seconds of noise, the first half silent."""
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 10 ** (level_db / 20), 2 * RATE_HZ)
    sound[:RATE_HZ] = 0
    return sound.astype(np.float32)


@pytest.mark.parametrize("gain_db", [-20.0, -6.0, 3.0])
def test_gain_moves_all_velocities_by_their_dynamics(gain_db: float) -> None:
    before = heard_velocities(passage(TYPICAL_DB - 9), RATE_HZ, PLAYED)
    after = heard_velocities(passage(TYPICAL_DB - 9 + gain_db), RATE_HZ, PLAYED)
    np.testing.assert_allclose(after, before * 10 ** (gain_db / DYNAMIC_DB), rtol=1e-3)
    assert after[1] == 0
    np.testing.assert_allclose(after / after[0], PLAYED / PLAYED[0], rtol=1e-5)


def test_velocities_stay_in_their_range() -> None:
    loud = heard_velocities(passage(TYPICAL_DB + 30), RATE_HZ, PLAYED)
    quiet = heard_velocities(passage(-120), RATE_HZ, PLAYED)
    assert loud.tolist() == [127, 0, 127, 127]
    assert quiet.tolist() == [1, 0, 1, 1]


def test_silence_and_unknown_velocities_change_nothing() -> None:
    unknown = np.zeros(3, np.float32)
    assert heard_velocities(passage(-20), RATE_HZ, unknown) is unknown
    assert heard_velocities(np.zeros(5, np.float32), RATE_HZ, PLAYED) is PLAYED
