"""Tests of beats with a constant tempo: tempo, subdivision, metre and bars."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.score.analysis import analyse
from service.score.beats import NO_BEAT_HINTS, BeatHints
from service.score.steady import find_steady_beats
from tests.service.score.music import as_notes, free_rhythm, tune


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
