from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from tests.training.music.synth.conftest import level_db
from training.music.notes import Notes, notes_of
from training.music.synth.bank import Bank
from training.music.synth.lines import Line, phrased, random_line
from training.music.synth.render import Voice, render

ALL = Line(connected=1.0, slurred=1.0)


def melody(*pitches: int, held: float = 0.3, every: float = 0.5) -> Notes:
    onset = 0.2 + every * np.arange(len(pitches))
    return notes_of(onset, onset + held, list(pitches), velocity=90)


def play(bank: Bank, line: Line, notes: Notes, seconds: float = 2.0) -> NDArray[np.float32]:
    voice = Voice(bank.instruments["violin_one"], release_s=0.02, detune_cents=0.0, line=line)
    rng = np.random.default_rng(0)
    return render(bank, notes, [voice], seconds, 0.0, rng, np.zeros((0, 3))).audio


def around(audio: NDArray[np.float32], at_s: float, width_s: float = 0.03) -> Any:
    return audio[int((at_s - width_s / 2) * SAMPLE_RATE) : int((at_s + width_s / 2) * SAMPLE_RATE)]


def quietest_db(audio: NDArray[np.float32], begin_s: float, end_s: float) -> float:
    return min(level_db(around(audio, at)) for at in np.arange(begin_s, end_s, 0.01))


def test_the_level_stays_through_a_slur_and_falls_between_detached_notes(bank: Bank) -> None:
    notes = melody(67, 71)
    slurred, detached = play(bank, ALL, notes), play(bank, Line(), notes)
    assert quietest_db(slurred, 0.55, 0.85) > level_db(around(slurred, 0.45)) - 6
    assert quietest_db(detached, 0.55, 0.85) < level_db(around(detached, 0.45)) - 20


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        (melody(60, 62, held=0.2), "a rest lies between"),
        (notes_of([0.2, 0.2, 0.7], [0.6, 0.6, 1.0], [60, 64, 65]), "a chord"),
        (notes_of([0.1, 0.2, 0.7], [1.5, 0.6, 1.0], [48, 64, 65]), "another note sounds on"),
    ],
)
def test_only_a_line_of_single_notes_is_connected(notes: Notes, why: str) -> None:
    played, phrasing = phrased(notes, ALL, np.random.default_rng(0))
    np.testing.assert_array_equal(played.offset, notes.offset, why)
    assert not phrasing.slurred.any()


@given(
    st.lists(st.tuples(st.floats(0.05, 1), st.floats(0.01, 2), st.integers(40, 90)), max_size=12),
    st.integers(0, 2**32),
)
def test_phrasing_keeps_onsets_and_the_order_of_ends(
    steps: list[tuple[float, float, int]], seed: int
) -> None:
    gaps, lengths, pitches = np.array(steps).reshape(-1, 3).T
    onset = np.cumsum(gaps)
    notes = notes_of(onset, onset + lengths, pitches, 80)
    rng = np.random.default_rng(seed)
    played, phrasing = phrased(notes, random_line(True, rng), rng)
    np.testing.assert_array_equal(played.onset, notes.onset)
    assert (played.offset > played.onset).all()
    assert phrasing.slurred.sum() == phrasing.left.sum()
