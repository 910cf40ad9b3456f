"""Tests of beat tracking: performances with known beats, constant tempos and long pauses."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.score.analysis import Analysis, analyse
from service.score.beats import MIN_STEADY_CONFIDENCE, NO_BEAT_HINTS, BeatHints, Beats
from service.score.keys import Key
from service.score.metre import find_beats
from service.score.pauses import find_beats_between_pauses
from service.score.steady import find_steady_beats
from tests.service.score.music import as_notes, free_rhythm, tune


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


# -- constant tempo --------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.floats(85, 160), st.sampled_from([3, 4]), st.integers(0, 9))
def test_steady_music_has_a_constant_tempo(bpm: float, beats_per_bar: int, seed: int) -> None:
    beats_s = 0.7 + np.arange(72) * 60 / bpm
    beats = find_steady_beats(tune(beats_s, beats_per_bar, seed), NO_BEAT_HINTS)
    assert beats is not None
    assert np.ptp(np.diff(beats.time_s)) < 1e-9
    assert beats.bpm in (pytest.approx(bpm, rel=0.003), pytest.approx(bpm / 2, rel=0.003))
    assert np.abs(beats_s[0] - beats.time_s).min() < 0.02


@pytest.mark.parametrize("seed", [1, 12, 15])
@pytest.mark.parametrize("bpm", [132, 156])
def test_notes_of_a_melody_are_on_the_grid(bpm: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.choice([1, 1, 1, 2, 1.5], 40)
    lengths = np.concatenate([[1.5, 0.5] if length == 1.5 else [length] for length in drawn])
    lengths_s = lengths * 60 / bpm
    onset_s = 0.6 + np.append(0, np.cumsum(lengths_s))[:-1]
    pitch = 62 + np.cumsum(rng.choice([-2, -1, 1, 2], len(lengths))) % 14
    jitter_s = rng.normal(0, 0.008, len(lengths))
    rows = onset_s + jitter_s, onset_s + 0.92 * lengths_s, pitch, np.full(len(lengths), 80)
    beats = find_steady_beats(np.stack(rows, 1), NO_BEAT_HINTS)
    assert beats is not None
    place = beats.position(onset_s) * beats.subdivision
    assert (np.abs(place - np.round(place)) < 0.3).mean() > 0.8


@pytest.mark.parametrize("bpm", [90, 150])
def test_accompaniment_of_a_waltz_has_bars_of_three_beats(bpm: float) -> None:
    rng = np.random.default_rng(0)
    beat_s, roots = 60 / bpm, (50, 50, 43, 50, 50, 45, 45, 50) * 2
    rows = [(0.5, 0.5 + beat_s, 69, 80)]  # pickup
    for bar, root in enumerate(roots):
        start_s = 0.5 + (1 + 3 * bar) * beat_s
        rows.append((start_s, start_s + beat_s, root, 70))
        chords = [(start_s + n * beat_s, root + step) for n in (1, 2) for step in (16, 19)]
        melody = [(start_s + n * beat_s, 69 + (0, 4, 2)[(bar + n) % 3]) for n in range(3)]
        rows += [(on, on + 0.8 * beat_s, pitch, 70) for on, pitch in chords + melody]
    notes = np.array(rows) + rng.normal(0, 0.008, (len(rows), 1)) * [1, 1, 0, 0]
    notes = notes[np.argsort(notes[:, 0])]
    beats = find_steady_beats(notes, NO_BEAT_HINTS)
    assert beats is not None
    assert beats.signature(beats.beats_per_bar) == (3, 4)


@pytest.mark.parametrize("bpm", [80, 100])
def test_one_quintuplet_does_not_change_the_tempo(bpm: float) -> None:
    beats_s = 0.5 + np.arange(33) * 60 / bpm
    quintuplet_s = np.linspace(beats_s[14], beats_s[15], 6)[1:5]
    onset_s = np.sort(np.concatenate([beats_s, quintuplet_s]))
    onset_s += np.random.default_rng(0).normal(0, 0.008, len(onset_s))
    rows = [(on, on + 0.1, 60 + 2 * n % 7, 80) for n, on in enumerate(onset_s)]
    beats = find_steady_beats(np.array(rows), NO_BEAT_HINTS)
    assert beats is not None
    assert beats.bpm == pytest.approx(bpm, rel=0.01)


@pytest.mark.parametrize("long", [0.66, 0.7])
def test_swung_eighths_have_beats_of_two_parts(long: float) -> None:
    rng = np.random.default_rng(0)
    beats_s = 0.5 + np.arange(64) * 0.4
    rows = [
        (beat_s + place * 0.4, beat_s + place * 0.4 + 0.2, rng.integers(58, 70), 80)
        for beat_s in beats_s
        for place in (0.0, long)
    ]
    notes = np.array(rows) + rng.normal(0, 0.008, (len(rows), 1)) * [1, 1, 0, 0]
    beats = find_steady_beats(notes, NO_BEAT_HINTS)
    assert beats is not None
    assert beats.subdivision == 2
    assert beats.bpm == pytest.approx(150, rel=0.01)
    assert np.abs(beats.time_s[:, None] - beats_s).min(0).max() < 0.03


def test_jig_has_beats_of_three_parts() -> None:
    rng = np.random.default_rng(0)
    rows = [
        (0.5 + n / 6, 0.65 + n / 6, 67 + (0, 4, 7, 4, 5, 9, 7, 5, 2)[n % 9], 80)
        for n in range(192)
        if n % 12 not in (1, 7, 10, 11)
    ]
    notes = np.array(rows) + rng.normal(0, 0.006, (len(rows), 1)) * [1, 1, 0, 0]
    beats = find_steady_beats(notes, NO_BEAT_HINTS)
    assert beats is not None
    assert beats.subdivision == 3
    assert beats.bpm == pytest.approx(120, rel=0.01)


@pytest.mark.parametrize("bpm", [90, 119, 140, 160])
def test_strummed_eighths_have_bars_of_four_beats(bpm: float) -> None:
    rng = np.random.default_rng(0)
    strums_s = 0.5 + np.flatnonzero(np.tile([1, 0, 1, 1, 0, 1, 1, 1], 10)) * 30 / bpm
    rows = [
        (onset + 0.011 * string + rng.normal(0, 0.006), onset + 0.3, pitch + (0, 5)[bar % 2], 70)
        for onset in strums_s
        for bar in [int((onset - 0.45) // (240 / bpm))]
        for string, pitch in enumerate((40, 47, 52, 56, 59))
    ]
    analysis = analyse(as_notes(np.array(sorted(rows)), "plucked"))
    assert analysis.steady
    assert analysis.beats.bpm == pytest.approx(bpm, rel=0.005)
    assert analysis.beats.beats_per_bar == 4
    downs_s = analysis.beats.time_s[analysis.beats.bar == 0]
    assert np.abs(downs_s - strums_s[0]).min() < 0.04
    tempos = [bar for bar in analysis.tempo.bars if bar[1:] == (4, 4)]
    assert len(tempos) == 1


@pytest.mark.parametrize("beats_per_bar", [5, 7])
def test_rare_metres_are_detected_or_set_by_hints(beats_per_bar: int) -> None:
    beats_s = 0.6 + np.arange(84) * 0.5
    notes = as_notes(tune(beats_s, beats_per_bar))
    for hints in (NO_BEAT_HINTS, BeatHints(beats_per_bar=beats_per_bar)):
        beats = analyse(notes, hints).beats
        assert beats.signature(beats.beats_per_bar) == (beats_per_bar, 4)
        downs_s = beats.time_s[beats.bar == 0]
        assert np.abs(downs_s[:10, None] - beats_s[::beats_per_bar]).min(1).max() < 0.03


@pytest.mark.parametrize("bpm", [None, 60])
def test_twelve_eight_metre_is_set_by_hints(bpm: float | None) -> None:
    pitches = np.random.default_rng(0).integers(60, 68, 144).tolist()
    eighths = [n for n in range(144) if n % 6 != 4]
    rows: list[tuple[float, ...]] = [
        (0.6 + n / 3, 0.9 + n / 3, pitches[n], 72 - 6 * (n % 3 > 0)) for n in eighths
    ]
    rows += [(0.6 + 4 * bar, 4.5 + 4 * bar, (36, 41, 43)[bar % 3], 80) for bar in range(12)]
    hints = BeatHints(bpm=bpm, beats_per_bar=4, subdivision=3)
    beats = analyse(as_notes(np.array(sorted(rows))), hints).beats
    assert beats.signature(beats.beats_per_bar) == (12, 8)
    assert beats.bpm == pytest.approx(60, rel=0.01)
    assert beats.time_s[beats.bar == 0][:3] == pytest.approx([0.6, 4.6, 8.6], abs=0.02)


def test_rubato_and_free_rhythm_are_not_steady() -> None:
    rubato_s = np.cumsum(0.5 + 0.08 * np.sin(np.arange(80) / 6))
    assert find_steady_beats(tune(rubato_s, 4), NO_BEAT_HINTS) is None
    waits_s = np.random.default_rng(3).exponential(0.3, 200)
    assert find_steady_beats(free_rhythm(waits_s), NO_BEAT_HINTS) is None


def test_pauses_of_part_of_a_beat_are_not_steady() -> None:
    beats_s = 0.6 + np.arange(96) * 0.5
    steady = tune(beats_s, 4)
    assert find_steady_beats(steady, NO_BEAT_HINTS) is not None
    paused = steady.copy()
    for bar in (6, 12, 18):
        paused[steady[:, 0] > 0.55 + 2 * bar, :2] += 0.125
    assert find_steady_beats(paused, NO_BEAT_HINTS) is None
    assert find_steady_beats(paused, BeatHints(fixed_tempo=True)) is not None
    assert find_steady_beats(steady, BeatHints(bpm=100)) is None


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
