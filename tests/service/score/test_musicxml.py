"""Beams."""

from fractions import Fraction

from service.score.musicxml import beams
from service.score.rhythm import Value
from service.score.voices import Chord


def beams_of(*lengths: str) -> list[list[str]]:
    """Return the beams of notes with these lengths in beats, from the start of a bar."""
    now, values = Fraction(0), []
    for text in lengths:
        length = Fraction(text)
        values.append(Value(now, now + length, Chord(now, length, (60,))))
        now += length
    found = beams(values, Fraction(0), Fraction(1), joined=True)
    return [list(found.get(index, [])) for index in range(len(values))]


def test_beams_join_the_notes_of_a_beat_and_eighths_of_two() -> None:
    assert beams_of("1/2", "1/2", "1/2", "1/2") == [["begin"], ["continue"], ["continue"], ["end"]]
    assert beams_of("1", "1/2", "1/4", "1/4") == [
        [],
        ["begin"],
        ["continue", "begin"],
        ["end", "end"],
    ]
    assert beams_of("1/2", "3/2") == [[], []]


def test_hooks_point_into_the_beam_of_the_level_below() -> None:
    assert beams_of("3/4", "1/4") == [["begin"], ["end", "backward hook"]]
    assert beams_of("1/2", "1/8", "3/8") == [
        ["begin"],
        ["continue", "begin", "forward hook"],
        ["end", "end"],
    ]
