"""Tests of the spelling of pitches in a key."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from service.score.quantise import QuantisedNote
from service.score.spelling import name_of, spelled
from tests.service.score.music import as_notes

music21 = pytest.importorskip("music21", reason="reads scores back")
MAJOR, MINOR = (0, 2, 4, 5, 7, 9, 11, 12), (0, 2, 3, 5, 7, 8, 10, 12)


def scale_and_chords(tonic: int, minor: bool) -> list[tuple[float, float, int, int]]:
    """Return two scales up and down, each followed by a cadence. Notes last half a second."""
    scale = MINOR if minor else MAJOR
    third = 3 if minor else 4
    chords = (0, third, 7), (5, 5 + third, 12), (7, 11, 14), (0, third, 7)
    rows, now = [], 0.5
    for _ in range(2):
        for step in (*scale, *scale[::-1], 0):
            rows.append((now, now + 0.45, 60 + tonic + step, 80))
            now += 0.5
        for chord in chords:
            rows += [(now, now + 0.9, 48 + tonic + step, 80) for step in chord]
            now += 1
    return rows


@pytest.mark.parametrize("minor", [False, True])
@pytest.mark.parametrize("tonic", range(12))
def test_scales_need_no_accidentals_except_the_leading_note(tonic: int, minor: bool) -> None:
    score = ScoreDocument(
        as_notes(np.array(scale_and_chords(tonic, minor))), BeatHints(chords=False)
    )
    fifths = score.analysis.key.fifths
    assert (fifths - (7 * (tonic + 3 * minor))) % 12 == 0
    opened = music21.converter.parseData(score.musicxml, format="musicxml")
    names = {pitch.name for pitch in opened.flatten().pitches}
    signature = music21.key.KeySignature(fifths)
    scale = {pitch.name for pitch in signature.getScale("minor" if minor else "major").pitches}
    step, alter, _ = name_of(59 + tonic, fifths, 1)
    assert names <= scale | ({step + "-#"[alter > 0] * abs(alter)} if minor else set())


def test_chromatic_notes_are_spelled_by_direction() -> None:
    line = (60, 61, 62, 61, 60, 66, 67, 68, 67, 63, 69, 63, 64)
    notes = [QuantisedNote(p, Fraction(n), Fraction(1)) for n, p in enumerate(line)]
    spelling = spelled(notes, [(Fraction(0), 0)])
    steps = [spelling[note.onset, note.pitch] for note in notes]
    names = [step + ("", "#", "b")[alter] for step, alter, _ in steps]
    assert names[:9] == ["C", "C#", "D", "Db", "C", "F#", "G", "Ab", "G"]
    assert names[9:] == ["D#", "A", "D#", "E"]  # a repeated note keeps its name


@pytest.mark.parametrize(
    ("line", "minor"),
    [
        ("E4 E4 G#4 F#4 E4 D#4 C#4 B3 C#4 F#4 A4 B4", True),  # an excursion to E major
        ("G4 F4 C4 D4 E-4 F4 G4 C4 D4 F4 G4 F4", True),  # an excursion to C minor
        ("A3 C4 E4 A3 D#4 A3 F#4 A3 C4 E4 A4 B4", True),
        ("C4 E4 G4 C4 E-4 C4 G4 C4 F4 A4 C5 F4", False),
        ("E4 B3 F#4 B3 D#4 B3 F#4 A4 B3 E4 B4 E5", False),
        ("C4 F4 C5 F4 A-4 F4 C5 D4 F4 B-4 D5 F4", False),
    ],
)
def test_chromatic_notes_without_a_direction_suit_the_notes_around(line: str, minor: bool) -> None:
    pitches = [music21.pitch.Pitch(name) for name in line.split()]
    notes = [QuantisedNote(p.midi, Fraction(n), Fraction(1)) for n, p in enumerate(pitches)]
    spelling = spelled(notes, [(Fraction(0), 0)], minor)
    names = [spelling[note.onset, note.pitch] for note in notes]
    assert [step + ("", "#", "-")[alter] for step, alter, _ in names] == [p.name for p in pitches]


def test_note_of_a_sharp_chord_keeps_its_sharp_before_a_lower_note() -> None:
    chord, after = ("D3", "F#4", "A4"), ("D3", "F4", "A4")
    rows = [(n, name) for n in range(8) for name in (chord if n < 4 else after)]
    pitches = [(Fraction(n), music21.pitch.Pitch(name)) for n, name in rows]
    notes = [QuantisedNote(p.midi, n, Fraction(1)) for n, p in pitches]
    spelling = spelled(notes, [(Fraction(0), -2)], minor=True)
    assert {spelling[n, 66] for n, p in pitches if p.midi == 66} == {("F", 1, 4)}


def test_octaves_of_both_hands_have_one_name() -> None:
    left, right = (46, 53, 41, 48), (76, 71, 81, 76)
    rows = []
    for n in range(16):
        rows += [(n / 2, n / 2 + 0.4, pitch[n % 4], 80) for pitch in (left, right)]
    rows += [(8.0, 8.4, pitch, 80) for pitch in (51, 75)]
    score = ScoreDocument(as_notes(np.array(rows), "piano"), BeatHints(bpm=120, chords=False))
    opened = music21.converter.parseData(score.musicxml, format="musicxml")
    assert len(opened.parts) == 2
    (name,) = {pitch.name for pitch in opened.flatten().pitches if pitch.pitchClass == 3}
    assert name in ("D#", "E-")


@given(st.integers(0, 127), st.integers(-6, 6), st.integers(-1, 1), st.floats(-2, 7))
def test_spelled_names_have_the_same_pitch(
    pitch: int, fifths: int, direction: int, mean: float
) -> None:
    step, alter, octave = name_of(pitch, fifths, direction, mean)
    assert abs(alter) <= 1
    natural = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}[step]
    assert 12 * (octave + 1) + natural + alter == pitch
