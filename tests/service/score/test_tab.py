"""Strings and frets of a guitar."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.score.staves import Chord
from service.score.tab import FRETS, OPEN, tab_line
from service.score.written import WrittenScore
from tests.service.score.music import as_notes, tune


def chord(onset: int, *pitches: int) -> Chord:
    return Chord(Fraction(onset), Fraction(2), tuple(map(str, pitches)), pitches)


@given(st.lists(st.sets(st.integers(36, 90), min_size=1, max_size=7), min_size=1, max_size=8))
def test_what_is_written_can_be_played(rows: list[set[int]]) -> None:
    for written in tab_line([chord(n, *sorted(row)) for n, row in enumerate(rows)]):
        strings = [string for string, _ in written.places]
        assert len(set(strings)) == len(strings)
        for pitch, (string, fret) in zip(written.pitches, written.places, strict=True):
            assert OPEN[string - 1] + fret == pitch
            assert 0 <= fret <= FRETS
        frets = [fret for _, fret in written.places if fret]
        assert not frets or max(frets) - min(frets) <= 4


def test_chords_that_guitarists_know() -> None:
    (e_minor,) = tab_line([chord(0, 40, 47, 52, 55, 59, 64)])
    assert [fret for _, fret in e_minor.places] == [0, 2, 2, 0, 0, 0]
    scale = tab_line([chord(n, p) for n, p in enumerate((60, 62, 64, 65, 67))])
    assert [c.places for c in scale] == [((2, 1),), ((2, 3),), ((1, 0),), ((1, 1),), ((1, 3),)]


def test_a_guitar_has_a_second_staff() -> None:
    music21 = pytest.importorskip("music21", reason="the extra score")
    notes = as_notes(tune(0.6 + np.arange(33) * 0.5, 4), "plucked")
    score = WrittenScore(notes).musicxml
    assert score.count(b"<staff-tuning ") == len(OPEN)
    assert score.count(b"<string>") == score.count(b"<fret>") > 40
    staff, tab = music21.converter.parseData(score, format="musicxml").parts
    assert staff.partName == "Guitar"
    assert isinstance(tab.recurse().getElementsByClass("Clef").first(), music21.clef.TabClef)
