"""Tests of tempo maps: conversion of times to ticks, and time signatures."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.tempo import FASTEST_BPM, TICKS_PER_BEAT, Tempo, TempoMap


@given(
    st.lists(st.floats(0.16, 3.0), min_size=1, max_size=30),
    st.floats(-100, 10),
    st.floats(0, 100),
    st.sampled_from([1.0, 1.5]),
)
def test_the_tempo_map_converts_times_to_ticks(
    periods_s: list[float], first_s: float, time_s: float, quarters: float
) -> None:
    """Beats lie on a sequencer's grid. No tempo exceeds the maximum, even before the first beat."""
    periods_s = [quarters * period_s for period_s in periods_s]
    beats_s = list(accumulate(periods_s, initial=first_s))
    tempo_map = TempoMap(Tempo(beats_s, quarters))
    tick, converted_s, last_tick, us_per_quarter = tempo_map.tick(time_s), 0.0, 0, 0
    for change, next_us_per_quarter in [*tempo_map.changes, (tick, 0)]:
        converted_s += (min(tick, change) - last_tick) / TICKS_PER_BEAT * us_per_quarter / 1e6
        last_tick, us_per_quarter = min(tick, change), next_us_per_quarter
    assert converted_s == pytest.approx(time_s, abs=max(periods_s) / TICKS_PER_BEAT + 1e-5)
    assert all(0 < 60e6 / period_us <= FASTEST_BPM + 0.1 for _, period_us in tempo_map.changes)
    per_beat = TICKS_PER_BEAT * quarters
    in_file = [beat_s for beat_s in beats_s[1:] if beat_s >= 60 / FASTEST_BPM * quarters]
    assert all((tempo_map.tick(beat_s) + 1) % per_beat <= 2 for beat_s in in_file)


def test_bars_before_0_s_are_omitted() -> None:
    beats_s = tuple(0.5 * beat for beat in range(-20, 10))
    tempo_map = TempoMap(Tempo(beats_s, bars=((2, 3, 4), (8, 4, 4), (24, 2, 4))))
    assert tempo_map.changes == [(0, 500_000)]
    assert tempo_map.signatures == [(0, 4, 4), (4 * TICKS_PER_BEAT, 2, 4)]


def test_each_bar_has_one_signature() -> None:
    """The bar that starts before 0 s is shorter, and the next bar has another signature."""
    beats_s = tuple(0.5 * beat for beat in range(-1, 20))
    tempo_map = TempoMap(Tempo(beats_s, bars=((0, 3, 4), (3, 4, 4))))
    assert tempo_map.signatures == [(0, 2, 4), (2 * TICKS_PER_BEAT, 4, 4)]
