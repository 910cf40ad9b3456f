"""Tests of the division of a staff into voices."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.score.quantise import QuantisedNote
from service.score.voices import Chord, voices

BARS = [(Fraction(4 * bar), 4) for bar in range(4)]


def note(pitch: int, onset: float, length: float, grace: bool = False) -> QuantisedNote:
    return QuantisedNote(pitch, Fraction(onset), Fraction(length), grace)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12), st.integers(40, 80)), max_size=25),
    st.booleans(),
)
def test_voices_contain_all_notes_and_do_not_overlap(
    rows: list[tuple[int, int, int]], one_line: bool
) -> None:
    notes = [note(pitch, onset / 4, length / 4) for onset, length, pitch in rows]
    lines = voices(notes, BARS, one_line)
    assert len(lines) == 2
    assert not (one_line and lines[1])
    for line in lines:
        assert all(a.end <= b.onset for a, b in pairwise(line))
        assert all(chord.length > 0 for chord in line)
    written = {(chord.onset, pitch) for line in lines for chord in line for pitch in chord.pitches}
    assert written == {(n.onset, n.pitch) for n in notes}


def test_melody_above_held_notes_is_a_separate_voice() -> None:
    melody = [note(72 + n % 3, n, 1) for n in range(16)]
    upper, lower = voices(melody + [note(60, 4, 4), note(59, 8, 4)], BARS)
    assert [chord.pitches for chord in upper] == [(n.pitch,) for n in melody]
    assert lower == [Chord(Fraction(4), Fraction(4), (60,)), Chord(Fraction(8), Fraction(4), (59,))]


def test_chords_of_one_rhythm_are_one_voice() -> None:
    upper, lower = voices([note(p, n, 0.9) for n in range(16) for p in (60, 64, 67)], BARS)
    assert not lower
    assert {chord.pitches for chord in upper} == {(60, 64, 67)}


def test_notes_sustained_by_the_pedal_are_one_voice() -> None:
    ringing = [note((48, 55, 60, 64)[n % 4], n, 4 - n % 4) for n in range(16)]
    upper, lower = voices(ringing, BARS)
    assert not lower
    assert all(chord.length == 1 for chord in upper)


def test_legato_melody_is_one_voice() -> None:
    _, lower = voices([note(60 + n % 7, n / 2, 0.8) for n in range(32)], BARS)
    assert not lower


def test_grace_note_is_in_the_voice_of_its_main_note() -> None:
    melody = [note(72 + n % 3, n, 1) for n in range(16)]
    upper, lower = voices([*melody, note(60, 4, 4), note(59, 4, 0.1, grace=True)], BARS)
    assert [chord.pitches for chord in lower] == [(59,), (60,)]
    assert lower[0].grace
