"""Tests of beat tracking: performances with known beats, constant tempos and long pauses."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.score.analysis import Analysis
from service.score.beats import MIN_STEADY_CONFIDENCE, NO_BEAT_HINTS, BeatHints, Beats
from service.score.keys import Key
from service.score.metre import find_beats
from service.score.pauses import find_beats_between_pauses
from service.score.steady import find_steady_beats
from tests.service.score.music import free_rhythm, tune


def hit_rate(true_s: NDArray[np.float64], beats_s: NDArray[np.float64]) -> float:
    """Return the share of beats within 70 ms, reduced if there are too many beats."""
    hits = np.abs(true_s[:, None] - beats_s).min(1) < 0.07
    return float(hits.mean()) * min(1.0, len(true_s) / len(beats_s))


@pytest.mark.parametrize("beats_per_bar", [3, 4])
@pytest.mark.parametrize("bpm", [84, 118])
def test_steady_tune_has_its_beats_and_bars(bpm: float, beats_per_bar: int) -> None:
    beats_s = 0.6 + np.arange(72) * 60 / bpm
    beats = find_beats(tune(beats_s, beats_per_bar))
    assert beats is not None
    assert hit_rate(beats_s[2:-3], beats.time_s[2:-2]) > 0.9
    assert beats.beats_per_bar == beats_per_bar
    assert beats.signature(3) == (3, 4)
    assert hit_rate(beats_s[::beats_per_bar][1:-2], beats.time_s[beats.bar == 0][1:-1]) > 0.8
    assert beats.confidence > 0.8


def test_beats_follow_a_ritardando() -> None:
    periods_s = np.concatenate([np.full(40, 0.5), np.linspace(0.5, 0.85, 24)])
    beats_s = np.cumsum(periods_s)
    beats = find_beats(tune(beats_s, 4))
    assert beats is not None
    assert hit_rate(beats_s[2:-3], beats.time_s[2:-2]) > 0.9


@pytest.mark.parametrize("beats_per_bar", [3, 4])
def test_beats_of_slow_rubato_are_not_doubled(beats_per_bar: int) -> None:
    beats_s = np.cumsum(1.1 * np.exp(0.15 * np.sin(np.arange(80) / 7)))
    beats = find_beats(tune(beats_s, beats_per_bar))
    assert beats is not None
    assert hit_rate(beats_s[2:-3], beats.time_s[2:-2]) > 0.95
    assert np.diff(beats.time_s).max() < 1.5


def test_runs_of_eight_notes_in_a_beat_are_sixteenths_of_shorter_beats() -> None:
    note_s, pitches = 0.1, np.tile([72, 71, 69, 71, 72, 74, 76, 74, 77, 76], 52)[:512]
    run = [(note_s * n, note_s * (n + 1), pitch, 70) for n, pitch in enumerate(pitches)]
    bass = [
        (note_s * n, note_s * (n + 4), (48, 52, 55, 52)[n // 4 % 4], 75) for n in range(0, 512, 4)
    ]
    notes = np.array(run + bass)
    notes[:, 0] += np.random.default_rng(0).normal(0, 0.012, len(notes))
    beats = find_beats(notes[np.argsort(notes[:, 0])])
    assert beats is not None
    assert beats.bpm == pytest.approx(150, abs=2)
    assert beats.subdivision == 2


def test_long_performance_has_its_beats() -> None:
    beats_s = np.cumsum(np.full(560, 0.55) + 0.1 * np.sin(np.arange(560) / 40))
    beats = find_beats(tune(beats_s, 3))
    assert beats is not None
    assert beats_s[-1] > 300
    assert hit_rate(beats_s[2:-3], beats.time_s[2:-2]) > 0.95
    downs_s = beats.time_s[beats.bar == 0]
    assert hit_rate(beats_s[::3][1:-2], downs_s[1:-1]) > 0.9
    assert np.diff(beats.time_s).min() > 0.2


@pytest.mark.parametrize(
    "waits_s",
    [
        *(np.random.default_rng(seed).exponential(0.3, 200) for seed in range(3)),
        *(mean_s * np.random.default_rng(0).uniform(0.5, 1.5, 30) for mean_s in (3.0, 8.0)),
    ],
)
def test_free_rhythm_has_low_confidence(waits_s: NDArray[np.float64]) -> None:
    beats = find_beats(free_rhythm(waits_s))
    assert beats is not None
    assert beats.confidence < MIN_STEADY_CONFIDENCE


def test_short_pause_does_not_change_the_tempo() -> None:
    before = tune(0.6 + np.arange(36) * 0.6, 4)
    later_s = np.array([before[-1, 1] + 5, before[-1, 1] + 5, 0, 0])
    beats = find_beats(np.vstack([before, before + later_s]))
    assert beats is not None
    assert beats.bpm == pytest.approx(100, rel=0.05)
    assert beats.beats_per_bar == 4


def test_few_notes_have_no_beats() -> None:
    assert find_beats(np.zeros((0, 4))) is None
    assert find_beats(tune(np.arange(4) * 0.5, 4)) is None


@pytest.mark.parametrize(
    ("find", "rel", "near_s"), [(find_beats, 0.05, 0.07), (find_steady_beats, 0.01, 0.03)]
)
def test_hints_override_the_estimate(
    find: Callable[[NDArray[np.float64], BeatHints], Beats | None], rel: float, near_s: float
) -> None:
    notes = tune(0.6 + np.arange(48) * 0.5, 4)
    slow = find(notes, BeatHints(bpm=60))
    assert slow is not None
    assert slow.bpm == pytest.approx(60, rel=rel)
    waltz = find(notes, BeatHints(beats_per_bar=3, first_downbeat_s=1.1))
    assert waltz is not None
    assert waltz.beats_per_bar == 3
    assert np.abs(waltz.time_s[waltz.bar == 0] - 1.1).min() < near_s


@given(st.lists(st.floats(0.2, 2), min_size=2, max_size=20), st.floats(-3, 40), st.integers(2, 4))
def test_position_is_the_inverse_of_time(
    periods_s: list[float], position: float, metre: int
) -> None:
    time_s = np.cumsum(periods_s)
    beats = Beats(time_s, np.arange(len(time_s)) % metre, metre, 2, 1.0)
    round_trip = beats.position(beats.time(np.array([position])))
    assert round_trip[0] == pytest.approx(position, abs=1e-6)


@given(st.integers(0, 3), st.integers(-9, 30), st.integers(1, 30))
def test_bars_cover_the_requested_beats(phase: int, start: int, length: int) -> None:
    beats = Beats(np.arange(20.0), (np.arange(20) + phase) % 4, 4, 2, 1.0)
    bars = beats.bars(start, start + length)
    assert bars[0][0] == start
    assert all(a + size == b for (a, size), (b, _) in zip(bars, bars[1:], strict=False))
    assert bars[-1][0] + bars[-1][1] >= start + length
    assert all(size == 4 for _, size in bars[1:])


@settings(max_examples=12)
@given(st.lists(st.tuples(st.floats(0.05, 1.5), st.integers(30, 90)), min_size=8, max_size=30))
def test_beats_of_any_notes_fit_into_midi_files(rows: list[tuple[float, int]]) -> None:
    onset_s = np.cumsum([wait_s for wait_s, _ in rows])
    columns = onset_s, onset_s + 0.3, [pitch for _, pitch in rows], np.full(len(rows), 64)
    beats = find_beats(np.stack(columns, 1))
    if beats is None:
        return
    assert len(beats.time_s) >= 2
    assert (np.diff(beats.time_s) > 0).all()
    analysis = Analysis(beats, Key(0, minor=False), steady=True)
    starts = [beat for beat, _, _ in analysis.tempo.bars]
    assert starts
    assert starts == sorted(set(starts))


# -- long pauses -----------------------------------------------------------------------------------

SECTION_S = 0.5 + np.cumsum(0.5 * np.exp(0.05 * np.sin(np.arange(65) / 9)))


@pytest.mark.parametrize("pause_s", [9.7, 65.3, 3000.0])
def test_pause_has_complete_bars_at_the_same_tempo(pause_s: float) -> None:
    section, shift_s = tune(SECTION_S, 4), SECTION_S[-1] - SECTION_S[0] + pause_s
    notes = np.concatenate([section, section + [shift_s, shift_s, 0, 0]])
    beats = find_beats_between_pauses(notes, NO_BEAT_HINTS)
    assert beats is not None
    assert np.all((np.diff(beats.bar) - 1) % 4 == 0)
    gaps_s = np.diff(beats.time_s)
    assert 0.42 < gaps_s.min() <= gaps_s.max() < 0.58
    for start_s in (SECTION_S[0], SECTION_S[0] + shift_s):
        assert beats.bar[np.abs(beats.time_s - start_s).argmin()] == 0


def test_first_downbeat_may_be_in_rests_before_the_notes() -> None:
    rng = np.random.default_rng(0)
    beats_s = 2 + np.cumsum(0.75 * np.exp(np.cumsum(rng.normal(0, 0.012, 49))))
    notes = tune(beats_s[4:], 4)
    downbeat_s = float(beats_s[0])
    notes = notes[notes[:, 0] > beats_s[6] - 0.1]  # bar 2 starts with two beats of rest
    beats = find_beats(notes, BeatHints(first_downbeat_s=downbeat_s))
    assert beats is not None
    downs_s = beats.time_s[beats.bar == 0]
    assert hit_rate(beats_s[8:-4:4], downs_s[downs_s > beats_s[7]]) > 0.8


def test_first_downbeat_after_a_pause_is_respected() -> None:
    section = tune(SECTION_S, 4)
    notes = np.concatenate([section, section + [100, 100, 0, 0]])
    downbeat_s = SECTION_S[1] + 100
    beats = find_beats_between_pauses(notes, BeatHints(first_downbeat_s=downbeat_s))
    assert beats is not None
    assert beats.bar[np.abs(beats.time_s - downbeat_s).argmin()] == 0
