"""Tests of dynamics, pedal, clefs and octave lines."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.notes.events import PedalPress
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from service.score.marks import clefs_of_bars, dynamics, octave_lines, presses, sections
from service.score.quantise import QuantisedNote
from service.score.voices import Chord
from tests.service.score.music import as_notes, tune

music21 = pytest.importorskip("music21", reason="reads scores back")
BARS = [(Fraction(4 * bar), 4) for bar in range(16)]


def levels(velocities: list[int]) -> dict[Fraction, str]:
    """Return the dynamic marks of quarter notes. ``velocities`` has one value per bar."""
    onsets = [Fraction(beat) for beat in range(4 * len(velocities))]
    return dynamics(onsets, np.repeat(velocities, 4).tolist(), BARS)


def test_sustained_levels_have_a_dynamic_mark() -> None:
    assert levels([70] * 6 + [90] * 5 + [70] * 5) == {0: "mf", 24: "f", 44: "mf"}
    assert levels([45] * 4 + [66] * 12) == {0: "p", 16: "mf"}


@pytest.mark.parametrize("velocities", [[70] * 16, [64, 76] * 8, [70] * 7 + [95] + [70] * 8, []])
def test_steady_levels_and_accents_have_no_mark(velocities: list[int]) -> None:
    assert levels(velocities) == {}


def test_pedal_marks_are_aligned_with_chords() -> None:
    chords = [Fraction(beat) for beat in range(9)]
    pedal = [(0.1, 3.97), (4.2, 8.1), (20.4, 22.6)]  # the second press follows its chord
    marks = [(float(press.down), float(press.up)) for press in presses(pedal, chords)]
    assert marks == [(0, 4), (4, 8), (20, 22.5)]


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5)), max_size=20))
def test_pedal_marks_do_not_overlap(pedal: list[tuple[float, float]]) -> None:
    marks = presses([(down, down + length) for down, length in sorted(pedal)], [Fraction(0)])
    assert all(press.down < press.up for press in marks)
    assert all(a.up <= b.down for a, b in pairwise(marks))


def test_clefs_follow_the_register() -> None:
    voice = ("Treble", "Treble8vb", "Bass")

    def clefs(*pitches: int, changes: bool = True) -> list[str]:
        """Return the clefs of bars, each with eight notes of a pitch, or none if it is 0."""
        eighths = enumerate(pitch for pitch in pitches for _ in range(8))
        notes = [QuantisedNote(p, Fraction(n, 2), Fraction(1, 2)) for n, p in eighths if p]
        return clefs_of_bars(notes, BARS[: len(pitches)], voice, changes)

    assert clefs(64, 67, 72, 76) == ["Treble"] * 4
    assert clefs(50, 55, 60, 64) == ["Treble8vb"] * 4  # a tenor
    assert clefs(43, 48, 52, 55) == ["Bass"] * 4
    assert clefs(72, 72, 0, 43, 43) == ["Treble"] * 3 + ["Bass"] * 2
    assert clefs(72, 72, 59, 72, 72) == ["Treble"] * 5  # one bar is no long passage
    assert clefs(72, 72, 72, 72, 50, 50, changes=False) == ["Treble"] * 6


def test_more_than_three_ledger_lines_need_an_octave_line() -> None:
    line = [
        Chord(Fraction(n), Fraction(1), (p,)) for n, p in enumerate((72, 84, 88, 91, 93, 79, 84))
    ]
    assert octave_lines(line, "Treble") == [("8va", line[1:5])]
    low = [Chord(Fraction(n), Fraction(1), (p, p + 12)) for n, p in enumerate((40, 28, 26, 28))]
    assert octave_lines(low, "Bass") == [("8vb", low[1:])]
    assert octave_lines(line[:3], "Treble") == []
    assert octave_lines(low, "Treble8vb") == []  # guitars and violins have no 8vb


def test_octave_lines_end_at_rests_and_notes_of_another_voice() -> None:
    onsets = (0, 1, 2, 6, 7, 8, 9, 10, 11)
    line = [Chord(Fraction(n), Fraction(1), (91,)) for n in onsets]
    halves = sections(line, [], 3)
    assert halves == [line[:3], line[3:]]
    assert sections(line, [Fraction(15, 2)], 4) == [line[:4], line[5:]]
    assert [octave_lines(half, "Treble") for half in halves] == [[("8va", half)] for half in halves]


def test_unusual_first_clef_needs_many_notes() -> None:
    def clef(*pitches: int) -> str:
        notes = [QuantisedNote(p, Fraction(n), Fraction(1)) for n, p in enumerate(pitches)]
        return clefs_of_bars(notes, BARS[:2], ("Treble", "Bass"))[0]

    assert clef(60) == clef(59, 60) == "Treble"
    assert clef(*[48] * 8) == "Bass"


@pytest.fixture(scope="module")
def document() -> bytes:
    """Return a piano score with a pickup, a loud phrase, high notes and pedal."""
    rows = [(1.0, 1.45, 67, 70)]
    for beat in range(64):
        onset_s = 1.5 + beat / 2
        velocity = 90 if 24 <= beat < 48 else 68
        pitch = (84, 88, 91, 96)[beat % 4] - 12 * (beat >= 16)
        rows.append((onset_s, onset_s + 0.45, pitch, velocity))
        if beat % 4 == 0:
            rows += [(onset_s, onset_s + 1.9, bass, velocity) for bass in (43, 48)]
    pedal = [PedalPress(1.6 + 2 * bar, 3.48 + 2 * bar) for bar in range(16)]
    pedal += [PedalPress(60, 61)]  # after the last note
    hints = BeatHints(bpm=120, beats_per_bar=4, first_downbeat_s=1.5)
    return ScoreDocument(as_notes(np.array(rows), "piano"), hints, pedal=pedal).musicxml


def test_guitar_scores_have_no_pedal() -> None:
    notes = as_notes(tune(np.arange(33) * 0.5, 4), "plucked")
    score = ScoreDocument(notes, pedal=[PedalPress(1.0, 2.0)])
    assert score.analysis.steady
    assert b"<pedal" not in score.musicxml


def test_marks_are_engraved(document: bytes) -> None:
    opened = music21.converter.parseData(document, format="musicxml")
    upper, lower = opened.parts
    bars = list(upper.getElementsByClass("Measure"))
    marks = [
        (m.getContextByClass("Measure").number, m.value)
        for m in upper.recurse().getElementsByClass("Dynamic")
    ]
    assert marks == [(0, "mf"), (7, "f"), (13, "mf")]
    assert [bar.number for bar in bars] == list(range(17))
    assert document.count(b'implicit="yes"') == 1  # the pickup has no number
    assert bars[-1].rightBarline.type == "final"
    (octaves,) = upper.recurse().getElementsByClass("Ottava")
    assert [note.pitch.midi for note in octaves.getSpannedElements()][:4] == [84, 88, 91, 96]
    assert document.count(b'<pedal type="start"') == document.count(b'<pedal type="stop"') == 16
    assert [
        clef.sign for part in (upper, lower) for clef in part.recurse().getElementsByClass("Clef")
    ] == ["G", "F"]
