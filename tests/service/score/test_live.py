"""Tests of the beats that are reported during a performance."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.score.analysis import analyse
from service.score.live import CONTEXT_S, LAG_S, TICK_S, LiveBeat, LiveBeats, fill_gaps
from tests.service.score.music import as_notes, free_rhythm, tune

BEATS_S = 0.6 + np.arange(80) * 0.5
TUNE = tune(BEATS_S, 4)
END_S = float(BEATS_S[-1])


def report(notes: NDArray[np.float64], times_s: Iterable[float]) -> list[tuple[LiveBeat, float]]:
    """Return the beats and their reporting times. The update at a time uses earlier notes only."""
    live, out = LiveBeats(), []
    for now_s in times_s:
        earlier = notes[notes[:, 0] < now_s].copy()
        earlier[earlier[:, 1] >= now_s, 1] = np.inf
        out += [(beat, now_s) for beat in live.update(earlier, now_s)]
    return out + [(beat, END_S) for beat in live.finish(notes, END_S)]


@cache
def offline_beats() -> list[LiveBeat]:
    return [beat for beat, _ in report(TUNE, [])]


def test_tune_has_its_beats_and_bars() -> None:
    time_s = np.array([beat.time_s for beat in offline_beats()])
    assert np.abs(BEATS_S[4:-4, None] - time_s).min(1).max() < 0.07
    downbeats = [beat for beat in offline_beats() if beat.place == 0 and beat.time_s > 10]
    downs_s = np.array([beat.time_s for beat in downbeats])
    assert np.abs(downs_s[:, None] - BEATS_S[::4]).min(1).max() < 0.07
    places = [beat.place for beat in offline_beats()]
    assert all((b - a) % 4 == 1 for a, b in zip(places, places[1:], strict=False))


@settings(max_examples=4)
@given(st.lists(st.floats(0.01, END_S), max_size=12))
def test_update_times_do_not_change_beats(times_s: list[float]) -> None:
    assert [beat for beat, _ in report(TUNE, sorted(times_s))] == offline_beats()


def test_delay_of_beats_is_bounded() -> None:
    reported = report(TUNE, np.arange(0.1, END_S, 0.1))
    first_s = reported[0][1]
    assert first_s < CONTEXT_S
    delays_s = [now_s - beat.time_s for beat, now_s in reported if now_s > first_s]
    assert max(delays_s) <= LAG_S + TICK_S + 0.2  # updates are 0.1 s apart


def test_free_rhythm_has_no_beats() -> None:
    notes = free_rhythm(np.random.default_rng(0).exponential(0.3, 150))
    assert LiveBeats().finish(notes, notes[-1, 0]) == []


def test_gaps_between_reported_beats_are_filled() -> None:
    rows = [LiveBeat(0.5 * n, n % 3, 3, 2, 1.0) for n in range(24) if n not in (9, 10, 11)]
    beats = fill_gaps(rows, 12)
    assert beats is not None
    assert beats.time_s == pytest.approx(0.5 * np.arange(24))
    assert beats.bar.tolist() == [0, 1, 2] * 8
    assert fill_gaps(rows, 30) is None
    assert fill_gaps(rows[:4], 2) is None
    assert fill_gaps(rows[:4]) is not None
    assert fill_gaps(rows[:1]) is None


@pytest.mark.parametrize("period_s", [0.25, 0.8, 1.0, 1.6])
def test_changes_of_tempo_are_no_gaps(period_s: float) -> None:
    time_s = [*(0.5 * np.arange(16)), *(7.5 + period_s * np.arange(1, 16))]
    fermata_s = [t + period_s * (n > 24) for n, t in enumerate(time_s)]
    for times_s in (time_s, fermata_s):
        beats = fill_gaps([LiveBeat(t, n % 4, 4) for n, t in enumerate(times_s)])
        assert beats is not None
        assert beats.time_s == pytest.approx(times_s)


def test_long_gap_between_beats_needs_little_memory() -> None:
    rows = [LiveBeat(1e-6 * n, n % 4, 4) for n in range(9)] + [LiveBeat(86_400, 0, 4)]
    beats = fill_gaps(rows, 0)
    assert beats is None or len(beats.time_s) < 1_000_000


def test_pause_in_a_live_performance_has_complete_bars() -> None:
    tune_s = [0.5 * n for n in range(17)] + [60.3 + 0.5 * n for n in range(17)]
    rows = [LiveBeat(time_s, n % 17 % 4, 4, 2, 1.0) for n, time_s in enumerate(tune_s)]
    first = tune(np.array(tune_s[:17]), 4)
    notes = as_notes(np.concatenate([first, first + [60.3, 60.3, 0, 0]]))
    analysis = analyse(notes, reported=rows, is_live=True)
    assert analysis.steady
    assert np.all(np.diff(analysis.beats.bar) % 4 == 1)
    assert np.diff(analysis.beats.time_s).max() < 0.55
