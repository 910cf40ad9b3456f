"""Tests of the beams in MusicXML."""

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
    by_index = beams(values, Fraction(0), Fraction(1), joined=True)
    return [list(by_index.get(index, [])) for index in range(len(values))]


def test_beams_join_notes_of_one_beat_or_eighths_of_two() -> None:
    assert beams_of("1/2", "1/2", "1/2", "1/2") == [["begin"], ["continue"], ["continue"], ["end"]]
    assert beams_of("1", "1/2", "1/4", "1/4") == [
        [],
        ["begin"],
        ["continue", "begin"],
        ["end", "end"],
    ]
    assert beams_of("1/2", "3/2") == [[], []]


def test_hooks_point_into_the_lower_beam() -> None:
    assert beams_of("3/4", "1/4") == [["begin"], ["end", "backward hook"]]
    assert beams_of("1/2", "1/8", "3/8") == [
        ["begin"],
        ["continue", "begin", "forward hook"],
        ["end", "end"],
    ]
