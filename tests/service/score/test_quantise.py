"""Tests of the quantisation of notes to the beats."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.score.beats import Beats
from service.score.quantise import QuantisedNote, quantise_notes

BEATS = Beats(np.arange(0.0, 20.0, 0.5), np.arange(40) % 4, 4, 2, 1.0)


def quantise(
    onsets: list[float], lengths: list[float], pitches: list[int] | None = None
) -> list[QuantisedNote]:
    """Return the quantised notes. Onsets and lengths are in beats of half a second."""
    onset_s = np.array(onsets) * 0.5
    pitch = np.array(pitches or [60] * len(onsets))
    return quantise_notes(onset_s, onset_s + np.array(lengths) * 0.5, pitch, BEATS)


def test_eighths_triplets_and_sixteenths_are_quantised() -> None:
    onsets = [0.02, 0.49, 1.03, 1.32, 1.68, 2.01, 2.26, 2.49, 2.77]
    twelfths = [note.onset * 12 for note in quantise(onsets, [0.25] * 9)]
    assert twelfths == [0, 6, 12, 16, 20, 24, 27, 30, 33]


def test_grace_note_has_the_onset_of_its_main_note() -> None:
    grace, main = quantise([0.88, 1.0], [0.1, 1.0], [61, 62])
    assert grace.grace
    assert not main.grace
    assert grace.onset == main.onset == 1


def test_thirty_seconds_are_written_for_runs() -> None:
    beats = [float(n) for n in range(8)]
    run = beats + [8 + n / 8 for n in range(8)]
    assert [note.onset for note in quantise(run, [0.1] * 16)] == run
    pair = [*beats, 8.0, 8.13]
    assert max(note.onset.denominator for note in quantise(pair, [0.1] * 10)) <= 6


def test_onset_jitter_is_removed() -> None:
    rng = np.random.default_rng(0)
    onsets = np.arange(64) / 2
    notes = quantise((onsets + rng.normal(0, 0.04, 64)).clip(0).tolist(), [0.4] * 64)
    assert [note.onset for note in notes] == onsets.tolist()


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 6)), max_size=30))
def test_all_notes_are_quantised_in_order(rows: list[tuple[float, float]]) -> None:
    rows.sort()
    notes = quantise([on for on, _ in rows], [length for _, length in rows])
    assert all(note.length > 0 for note in notes)
    for note, (onset, _) in zip(notes, rows, strict=True):
        assert abs(float(note.onset) - onset) <= 0.5
