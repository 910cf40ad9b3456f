"""Beats that are found while the music goes on."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.score.analysis import analyse
from service.score.live import CONTEXT_S, LAG_S, TICK_S, LiveBeat, LiveBeats, fill_gaps
from tests.service.score.music import as_notes, free, tune

BEATS_S = 0.6 + np.arange(80) * 0.5
TUNE = tune(BEATS_S, 4)
END_S = float(BEATS_S[-1])


def heard(notes: NDArray[np.float64], moments_s: Iterable[float]) -> list[tuple[LiveBeat, float]]:
    """Return the beats and their reporting times. At each time only past notes are known."""
    live, out = LiveBeats(), []
    for now_s in moments_s:
        known = notes[notes[:, 0] < now_s].copy()
        known[known[:, 1] >= now_s, 1] = np.inf
        out += [(beat, now_s) for beat in live.update(known, now_s)]
    return out + [(beat, END_S) for beat in live.finish(notes, END_S)]


@cache
def at_once() -> list[LiveBeat]:
    return [beat for beat, _ in heard(TUNE, [])]


def test_beats_and_bars_of_a_tune() -> None:
    time_s = np.array([beat.time_s for beat in at_once()])
    assert np.abs(BEATS_S[4:-4, None] - time_s).min(1).max() < 0.07
    downs_s = np.array([beat.time_s for beat in at_once() if beat.place == 0 and beat.time_s > 10])
    assert np.abs(downs_s[:, None] - BEATS_S[::4]).min(1).max() < 0.07
    places = [beat.place for beat in at_once()]
    assert all((b - a) % 4 == 1 for a, b in zip(places, places[1:], strict=False))


@settings(max_examples=4)
@given(st.lists(st.floats(0.01, END_S), max_size=12))
def test_portions_make_no_difference(moments_s: list[float]) -> None:
    assert [beat for beat, _ in heard(TUNE, sorted(moments_s))] == at_once()


def test_the_delay_is_bounded() -> None:
    said = heard(TUNE, np.arange(0.1, END_S, 0.1))
    first_s = said[0][1]
    assert first_s < CONTEXT_S
    late = [now_s - beat.time_s for beat, now_s in said if now_s > first_s]
    assert max(late) <= LAG_S + TICK_S + 0.2  # 0.1 from moment to moment, 0.05 to the chord


@pytest.mark.parametrize("seed", range(4))
def test_free_playing_has_none(seed: int) -> None:
    notes = free(np.random.default_rng(seed).exponential(0.3, 150))
    assert LiveBeats().finish(notes, notes[-1, 0]) == []


def test_gaps_are_filled() -> None:
    rows = [LiveBeat(0.5 * n, n % 3, 3, 2, 1.0) for n in range(24) if n not in (9, 10, 11)]
    beats = fill_gaps(rows, 12)
    assert beats is not None
    assert beats.time_s == pytest.approx(0.5 * np.arange(24))
    assert beats.bar.tolist() == [0, 1, 2] * 8
    assert fill_gaps(rows, 30) is None
    assert fill_gaps(rows[:4], 2) is None


def test_close_beats_and_a_long_gap_need_little_memory() -> None:
    rows = [LiveBeat(1e-6 * n, n % 4, 4) for n in range(9)] + [LiveBeat(86_400, 0, 4)]
    beats = fill_gaps(rows, 0)
    assert beats is None or len(beats.time_s) < 1_000_000


def test_a_pause_of_a_live_performance_has_complete_bars() -> None:
    tune_s = [0.5 * n for n in range(17)] + [60.3 + 0.5 * n for n in range(17)]
    rows = [LiveBeat(time_s, n % 17 % 4, 4, 2, 1.0) for n, time_s in enumerate(tune_s)]
    first = tune(np.array(tune_s[:17]), 4)
    notes = as_notes(np.concatenate([first, first + [60.3, 60.3, 0, 0]]))
    analysis = analyse(notes, reported=rows)
    assert analysis.steady
    assert np.all(np.diff(analysis.beats.bar) % 4 == 1)
    assert np.diff(analysis.beats.time_s).max() < 0.55
