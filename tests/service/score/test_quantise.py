"""Notes on the grid of their beats."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.score.beats import Beats
from service.score.quantise import quantise_notes

BEATS = Beats(np.arange(0.0, 20.0, 0.5), np.arange(40) % 4, 4, 2, 1.0)


def placed(onsets: list[float], lengths: list[float], pitch: list[int] | None = None):  # type: ignore[no-untyped-def]
    """Times in beats of half a second."""
    onset_s = np.array(onsets) * 0.5
    pitches = np.array(pitch or [60] * len(onsets))
    return quantise_notes(onset_s, onset_s + np.array(lengths) * 0.5, pitches, BEATS)


def test_halves_quarters_and_triplets() -> None:
    onsets = [0.02, 0.49, 1.03, 1.32, 1.68, 2.01, 2.26, 2.49, 2.77]
    found = [note.onset * 12 for note in placed(onsets, [0.25] * 9)]
    assert found == [0, 6, 12, 16, 20, 24, 27, 30, 33]


def test_a_grace_note_takes_no_time() -> None:
    grace, main = placed([0.88, 1.0], [0.1, 1.0], [61, 62])
    assert grace.grace
    assert not main.grace
    assert grace.onset == main.onset == 1


def test_thirty_seconds_need_many_beats() -> None:
    run = [float(n) for n in range(8)] + [8 + n / 8 for n in range(8)]
    assert max(note.onset.denominator for note in placed(run, [0.1] * 16)) <= 6
    runs = [n / 8 for n in range(64)]
    assert [note.onset for note in placed(runs, [0.1] * 64)] == runs


def test_onsets_that_wander_stay_on_their_beats() -> None:
    rng = np.random.default_rng(0)
    onsets = np.arange(64) / 2
    found = placed((onsets + rng.normal(0, 0.04, 64)).clip(0).tolist(), [0.4] * 64)
    assert [note.onset for note in found] == onsets.tolist()


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 6)), max_size=30))
def test_all_notes_are_placed_in_order(rows: list[tuple[float, float]]) -> None:
    rows.sort()
    notes = placed([on for on, _ in rows], [length for _, length in rows])
    assert all(note.length > 0 for note in notes)
    for note, (onset, _) in zip(notes, rows, strict=True):
        assert abs(float(note.onset) - onset) <= 0.5
