"""Tests of the velocities within a performance."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.notes.dynamics import MEAN_VELOCITY, MIN_LEVEL, add_note, velocity_of
from service.protocol.checkpoint import Dynamics

LOUDNESS = st.lists(st.floats(0.08, 0.5), min_size=1, max_size=300)


def velocities(loudness: list[float]) -> list[int]:
    out, dynamics = [], Dynamics()
    for value in loudness:
        dynamics = add_note(dynamics, value)
        out.append(velocity_of(dynamics, value))
    return out


@given(LOUDNESS, st.floats(0.5, 2.0))
def test_gain_changes_velocities_at_most_by_rounding(loudness: list[float], gain: float) -> None:
    scaled = velocities([gain * value for value in loudness])
    for before, after in zip(velocities(loudness), scaled, strict=True):
        assert abs(before - after) <= 1


def test_velocities_follow_loudness_and_the_level_adapts_slowly() -> None:
    assert velocities([0.3])[0] == MEAN_VELOCITY
    crescendo = velocities([0.2 * 1.02**i for i in range(40)])
    assert all(before <= after for before, after in pairwise(crescendo))
    assert crescendo[-1] > MEAN_VELOCITY + 20
    settled = velocities([0.1] * 300 + [0.4] * 500)
    assert settled[300] == 127
    assert settled[-1] == pytest.approx(MEAN_VELOCITY, abs=2)


def test_faint_noise_has_low_velocities() -> None:
    faint = math.exp(MIN_LEVEL) / 8
    assert velocities([faint] * 100) == [round(MEAN_VELOCITY / 8)] * 100
    assert velocities([0.0]) == [1]
