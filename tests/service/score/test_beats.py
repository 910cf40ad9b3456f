"""The beats of performances whose beats are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.score.analysis import Analysis
from service.score.beats import MIN_STEADY_CONFIDENCE, BeatHints, Beats
from service.score.keys import Key
from service.score.metre import find_beats
from tests.service.score.music import free, tune


def share_found(true_s: NDArray[np.float64], found_s: NDArray[np.float64]) -> float:
    near = np.abs(true_s[:, None] - found_s).min(1) < 0.07
    return float(near.mean()) * min(1.0, len(true_s) / len(found_s))


@pytest.mark.parametrize("beats_per_bar", [3, 4])
@pytest.mark.parametrize("bpm", [84, 118])
def test_a_steady_tune(bpm: float, beats_per_bar: int) -> None:
    beats_s = 0.6 + np.arange(72) * 60 / bpm
    found = find_beats(tune(beats_s, beats_per_bar))
    assert found is not None
    assert share_found(beats_s[2:-3], found.time_s[2:-2]) > 0.9
    assert found.beats_per_bar == beats_per_bar
    assert found.signature(3) == (3, 4)
    assert share_found(beats_s[::beats_per_bar][1:-2], found.time_s[found.bar == 0][1:-1]) > 0.8
    assert found.confidence > 0.8


def test_it_follows_a_ritardando() -> None:
    periods_s = np.concatenate([np.full(40, 0.5), np.linspace(0.5, 0.85, 24)])
    beats_s = np.cumsum(periods_s)
    found = find_beats(tune(beats_s, 4))
    assert found is not None
    assert share_found(beats_s[2:-3], found.time_s[2:-2]) > 0.9


def test_a_long_performance_is_read_in_stretches() -> None:
    beats_s = np.cumsum(np.full(560, 0.55) + 0.1 * np.sin(np.arange(560) / 40))
    found = find_beats(tune(beats_s, 3))
    assert found is not None
    assert beats_s[-1] > 300
    assert share_found(beats_s[2:-3], found.time_s[2:-2]) > 0.95
    downs_s = found.time_s[found.bar == 0]
    assert share_found(beats_s[::3][1:-2], downs_s[1:-1]) > 0.9
    assert np.diff(found.time_s).min() > 0.2


@pytest.mark.parametrize(
    "waits_s",
    [
        *(np.random.default_rng(seed).exponential(0.3, 200) for seed in range(3)),
        *(apart_s * np.random.default_rng(0).uniform(0.5, 1.5, 30) for apart_s in (3.0, 8.0)),
    ],
)
def test_free_playing_has_no_beat(waits_s: NDArray[np.float64]) -> None:
    found = find_beats(free(waits_s))
    assert found is not None
    assert found.confidence < MIN_STEADY_CONFIDENCE


@pytest.mark.parametrize("pause_s", [5.0, 100.0])
def test_a_pause_keeps_the_tempo(pause_s: float) -> None:
    before = tune(0.6 + np.arange(36) * 0.6, 4)
    later_s = np.array([before[-1, 1] + pause_s, before[-1, 1] + pause_s, 0, 0])
    found = find_beats(np.vstack([before, before + later_s]))
    assert found is not None
    assert found.bpm == pytest.approx(100, rel=0.05)
    assert found.beats_per_bar == 4


def test_too_few_notes_have_none() -> None:
    assert find_beats(np.zeros((0, 4))) is None
    assert find_beats(tune(np.arange(4) * 0.5, 4)) is None


def test_a_listener_knows_better() -> None:
    beats_s = 0.6 + np.arange(48) * 0.5
    notes = tune(beats_s, 4)
    slow = find_beats(notes, BeatHints(bpm=60))
    assert slow is not None
    assert slow.bpm == pytest.approx(60, rel=0.05)
    waltz = find_beats(notes, BeatHints(beats_per_bar=3, first_downbeat_s=beats_s[1]))
    assert waltz is not None
    assert waltz.beats_per_bar == 3
    downs_s = waltz.time_s[waltz.bar == 0]
    assert np.abs(downs_s - beats_s[1]).min() < 0.07


@given(st.lists(st.floats(0.2, 2), min_size=2, max_size=20), st.floats(-3, 40), st.integers(2, 4))
def test_positions_and_times_are_inverse(
    periods_s: list[float], position: float, metre: int
) -> None:
    time_s = np.cumsum(periods_s)
    beats = Beats(time_s, np.arange(len(time_s)) % metre, metre, 2, 1.0)
    back = beats.position(beats.time(np.array([position])))
    assert back[0] == pytest.approx(position, abs=1e-6)


@given(st.integers(0, 3), st.integers(-9, 30), st.integers(1, 30))
def test_bars_cover_what_is_asked_for(phase: int, begin: int, length: int) -> None:
    beats = Beats(np.arange(20.0), (np.arange(20) + phase) % 4, 4, 2, 1.0)
    bars = beats.bars(begin, begin + length)
    assert bars[0][0] == begin
    assert all(a + size == b for (a, size), (b, _) in zip(bars, bars[1:], strict=False))
    assert bars[-1][0] + bars[-1][1] >= begin + length
    assert all(size == 4 for _, size in bars[1:])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.floats(0.05, 1.5), st.integers(30, 90)), min_size=8, max_size=30))
def test_any_playing_has_beats_that_a_file_can_hold(rows: list[tuple[float, int]]) -> None:
    onset_s = np.cumsum([wait_s for wait_s, _ in rows])
    columns = onset_s, onset_s + 0.3, [pitch for _, pitch in rows], np.full(len(rows), 64)
    found = find_beats(np.stack(columns, 1))
    if found is None:
        return  # too few
    assert len(found.time_s) >= 2
    assert (np.diff(found.time_s) > 0).all()
    analysis = Analysis(found, Key(0, minor=False), steady=True)
    starts = [beat for beat, _, _ in analysis.tempo.bars]
    assert starts
    assert starts == sorted(set(starts))
