"""Tests of the hands of keyboard scores and of guitar tablature."""

from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.score.quantise import QuantisedNote
from service.score.staves import FRETS, OPEN, SPAN, hands, tab_line


def test_distant_notes_are_split_between_hands() -> None:
    pitches = [36, 43, 72, 76, 40, 74]
    right, left = hands(
        QuantisedNote(p, Fraction(n // 4), Fraction(1)) for n, p in enumerate(pitches)
    )
    assert [note.pitch for note in right] == [72, 76, 74]
    assert [note.pitch for note in left] == [36, 43, 40]


def line(pitches: Iterable[int], step: Fraction = Fraction(1, 2)) -> list[QuantisedNote]:
    return [QuantisedNote(pitch, n * step, step) for n, pitch in enumerate(pitches)]


def test_two_voices_above_middle_c_are_on_two_staves() -> None:
    subject = [0, 2, 4, 5, 2, 4, 0, 7, 12, 11, 12, 7, 9, 7, 5, 4]
    upper = line([79 + step for step in subject] * 4, Fraction(1, 4))
    lower = line([66 - step for step in (0, 1, 3, 1)] * 4, Fraction(1))
    right, left = hands(upper + lower)
    assert (right, left) == (upper, lower)


def test_melody_in_chords_above_a_bass_stays_with_the_right_hand() -> None:
    right_hand = [note for n in range(16) for note in chord(n, 64, 67, 72 + n % 5)]
    left_hand = [note for n in range(16) for note in chord(n, 43, 50)]
    assert hands(right_hand + left_hand) == (right_hand, left_hand)


@pytest.mark.parametrize("lowest", [60, 64, 72, 84])
def test_melody_of_one_hand_stays_on_one_staff(lowest: int) -> None:
    melody = line([lowest + step for step in [0, 4, 7, 12, 14, 12, 11, 7, 5, 4, 2, -1] * 4])
    right, left = hands(melody)
    assert (right, left) == (melody, [])


def test_wide_arpeggio_stays_with_the_left_hand() -> None:
    left_hand = line([36, 43, 48, 52, 55, 52, 48, 43] * 8)
    right_hand = line([76, 74, 72, 79] * 8, Fraction(1))
    assert hands(left_hand + right_hand) == (right_hand, left_hand)


def chord(onset: int, *pitches: int) -> list[QuantisedNote]:
    return [QuantisedNote(pitch, Fraction(onset), Fraction(2)) for pitch in pitches]


@settings(max_examples=50)
@given(st.lists(st.sets(st.integers(36, 90), min_size=1, max_size=7), min_size=1, max_size=8))
def test_tablature_can_be_played(rows: list[set[int]]) -> None:
    for written in tab_line(sum((chord(n, *row) for n, row in enumerate(rows)), [])):
        strings = [string for string, _ in written.frets]
        assert len(set(strings)) == len(strings)
        for pitch, (string, fret) in zip(written.pitches, written.frets, strict=True):
            assert OPEN[string - 1] + fret == pitch
            assert 0 <= fret <= FRETS
        frets = [fret for _, fret in written.frets if fret]
        assert not frets or max(frets) - min(frets) <= SPAN


def test_tablature_uses_common_chord_shapes() -> None:
    (e_minor,) = tab_line(chord(0, 40, 47, 52, 55, 59, 64))
    assert [fret for _, fret in e_minor.frets] == [0, 2, 2, 0, 0, 0]
    scale = tab_line(sum((chord(n, p) for n, p in enumerate((60, 62, 64, 65, 67))), []))
    assert [c.frets for c in scale] == [((2, 1),), ((2, 3),), ((1, 0),), ((1, 1),), ((1, 3),)]


@pytest.mark.parametrize(
    ("pitches", "frets"),
    [
        ((56, 57, 62, 65), (2, 3, 1)),
        ((40, 47, 52, 56, 57, 59, 64), (0, 2, 2, 1, 0, 0)),
        ((58, 62, 64, 67), (3, 3, 3)),
        ((52, 58, 62, 64, 67), (2, 3, 3, 3)),
    ],
)
def test_ghost_note_does_not_move_a_chord_to_high_frets(
    pitches: tuple[int, ...], frets: tuple[int, ...]
) -> None:
    (written,) = tab_line(chord(0, *pitches))
    assert tuple(fret for _, fret in written.frets) == frets
