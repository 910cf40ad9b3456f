"""Tests of the key signatures of sections."""

from fractions import Fraction

import numpy as np
import pytest

from service.score.document import ScoreDocument
from service.score.keys import Key, key_sections
from service.score.quantise import QuantisedNote
from tests.service.score.music import as_notes

music21 = pytest.importorskip("music21", reason="reads scores back")
SCALE = (0, 2, 4, 5, 7, 9, 11, 12)


def section(first_bar: int, bars: int, tonic: int) -> list[QuantisedNote]:
    """Return bars of four beats: eighths of a major key above its tonic and dominant chords."""
    rng, notes = np.random.default_rng(0), []
    for bar in range(first_bar, first_bar + bars):
        start = Fraction(4 * bar)
        for half in range(8):
            pitch = 60 + tonic + SCALE[rng.integers(8)]
            notes.append(QuantisedNote(pitch, start + Fraction(half, 2), Fraction(1, 2)))
        bass = 48 + tonic + 7 * (bar % 2)
        notes += [QuantisedNote(bass + step, start, Fraction(4)) for step in (0, 4, 7)]
    return notes


def signatures(notes: list[QuantisedNote]) -> list[tuple[float, int]]:
    """Return (first bar, fifths) of each section of a piece in C major."""
    count = int(max(note.onset for note in notes) // 4) + 1
    bars = [(Fraction(4 * bar), 4) for bar in range(count)]
    sections = key_sections(notes, bars, Key(0, minor=False))
    return [(float(start / 4), fifths) for start, fifths in sections]


@pytest.mark.parametrize("tonic", [1, 3, 4, 8, 9, 10])
def test_section_in_another_key_has_a_signature(tonic: int) -> None:
    notes = section(0, 16, 0) + section(16, 12, tonic) + section(28, 16, 0)
    fifths = (7 * tonic + 6) % 12 - 6
    bars, keys = zip(*signatures(notes), strict=True)
    assert keys == (0, fifths, 0)
    assert bars == pytest.approx((0, 16, 28), abs=1)


def test_short_sections_and_the_dominant_have_no_signature() -> None:
    for bars, tonic in ((5, 3), (12, 7)):
        notes = section(0, 16, 0) + section(16, bars, tonic) + section(16 + bars, 16, 0)
        assert signatures(notes) == [(0, 0)]


def test_key_changes_after_a_rest() -> None:
    notes = section(0, 16, 0) + section(20, 16, 3)
    assert signatures(notes) == [(0, 0), (20, -3)]


def test_empty_bars_do_not_count_for_the_section_after_them() -> None:
    notes = section(0, 16, 0) + section(18, 7, 3) + section(25, 16, 0)
    assert signatures(notes) == [(0, 0)]


def test_signatures_are_engraved() -> None:
    notes = section(0, 16, 0) + section(16, 16, 3)
    rows = [(n.onset / 2, (n.onset + n.length) / 2 - 0.02, n.pitch, 70) for n in notes]
    document = ScoreDocument(as_notes(np.array(rows, float), "clarinet")).musicxml
    (part,) = music21.converter.parseData(document, format="musicxml").parts
    keys = part.recurse().getElementsByClass("KeySignature")
    assert [(key.measureNumber, key.sharps) for key in keys] == [(1, 2), (17, -1)]
    accidentals = [pitch.accidental for note in part.recurse().notes for pitch in note.pitches]
    assert not any(accidental and accidental.displayStatus for accidental in accidentals)
