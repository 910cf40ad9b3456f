"""Tests of written lengths, rests, ties and tuplets."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.score.beats import Beats
from service.score.rhythm import Rhythm, Value
from service.score.voices import Chord

F = Fraction
BEATS = {
    (size, sub): Beats(np.arange(0.0, 32.0, 0.5), np.arange(64) % size, size, sub, 1.0)
    for size in (2, 3, 4)
    for sub in (2, 3)
}


def values(
    played: Sequence[tuple[float | Fraction, float | Fraction]], size: int = 4, sub: int = 2
) -> list[Value]:
    """Return the note values of a voice. ``played`` has the onsets and lengths of its notes."""
    line = [Chord(F(onset), F(length), (60,)) for onset, length in played]
    count = math.ceil(max(onset + length for onset, length in played) / size)
    bars = [(F(size * bar), size) for bar in range(count)]
    return [value for bar in Rhythm(line, bars, BEATS[size, sub]).bars() for value in bar]


def lengths(*args, **keywords) -> list[float]:  # type: ignore[no-untyped-def]
    """Return the lengths of the values. Rests have negative lengths."""
    return [
        float(value.end - value.begin) * (1 if value.chord else -1)
        for value in values(*args, **keywords)
    ]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_long_notes_keep_their_bars(size: int) -> None:
    assert lengths([(0, 6 * size), (6 * size, size)], size=size) == [size] * 7


@pytest.mark.parametrize(
    ("onset", "length", "written"), [(3, 1.5, 1.5), (3.5, 1, 1), (3, 1.8, 2), (2, 2.5, 2.5)]
)
def test_notes_may_end_after_a_barline(onset: float, length: float, written: float) -> None:
    after = onset + written
    note = [
        value
        for value in values([(0, onset), (onset, length), (after, 8 - after)])
        if value.chord and value.chord.onset == onset
    ]
    assert [float(note[0].begin), float(note[-1].end)] == [onset, after]
    assert len(note) > 1  # tied


def test_drone_of_an_hour_is_written() -> None:
    """An algorithm that is quadratic in the length of a note would reach the test's time limit."""
    assert lengths([(0, 7199), (7203, 1)]) == [4] * 1800 + [-2, -1, 1]


@pytest.mark.parametrize(
    ("played", "written"),
    [
        ([(n, 0.7) for n in range(4)], [1, 1, 1, 1]),  # detached
        ([(n, 0.3) for n in range(4)], [0.5, -0.5] * 4),  # staccato
        ([(n / 2, 0.2) for n in range(8)], [0.5] * 8),
        ([(0, 0.7), (0.75, 0.2), (1, 1), (2, 1), (3, 1)], [0.75, 0.25, 1, 1, 1]),
        ([(0, 0.9), (1, 3)], [1, 3]),
        ([(0, 1.4), (1.5, 0.5), (2, 2)], [1.5, 0.5, 2]),
        ([(0, 0.5), (0.5, 1), (1.5, 0.5), (2, 2)], [0.5, 1, 0.5, 2]),  # syncopation
        (
            [(0, 1), (1, 0.5), (1.5, 1), (2.5, 0.5), (3, 1)],
            [1, 0.5, 0.5, 0.5, 0.5, 1],
        ),  # the middle of the bar stays visible
        ([(0, 1), (1, 2), (3, 1)], [1, 2, 1]),
        ([(0, 0.5), (3, 1)], [0.5, -0.5, -1, -1, 1]),
        ([(2, 2)], [-2, 2]),
        ([(1, 3)], [-1, 3]),
        ([(0, 2.5), (2.5, 1.5)], [2, 0.5, 0.5, 1]),
        ([(3, 2), (5, 3)], [-2, -1, 1, 1, 3]),  # across the barline
        ([(4, 4)], [-4, 4]),  # a bar of rest
    ],
)
def test_simple_lengths_are_written_on_the_beats(
    played: list[tuple[float, float]], written: list[float]
) -> None:
    assert lengths(played) == written


def test_staccato_notes_have_dots() -> None:
    assert {v.staccato for v in values([(n, 0.2) for n in range(4)]) if v.chord} == {True}
    assert not any(v.staccato for v in values([(n, 0.8) for n in range(4)]))


def test_compound_metre_has_dotted_beats() -> None:
    third = F(1, 3)
    eighths = [(n * third, third) for n in range(3)]
    assert lengths([*eighths, (1, 1)], size=2, sub=3) == pytest.approx([1 / 3] * 3 + [1])
    assert lengths([(0, 2 * third), (2 * third, 1), (5 * third, third)], size=2, sub=3) == (
        pytest.approx([2 / 3, 1 / 3, 2 / 3, 1 / 3])
    )
    assert lengths([(0, 3)], size=3, sub=3) == [2, 1]
    assert not any(value.tuplet for value in values(eighths, size=2, sub=3))


def test_triplets_are_complete_groups_with_marks() -> None:
    third = F(1, 3)
    voice = values([(0, 1), (1, third), (1 + third, F(1, 2)), (2, 1), (3 + 2 * third, third)])
    group = [v for v in voice if 1 <= v.begin < 2]
    assert [(v.begin, v.end) for v in group] == [(1, 1 + third), (1 + third, 2)]
    assert [v.mark for v in group] == ["start", "stop"]
    late = [v for v in voice if 3 <= v.begin]
    assert [v.chord is None for v in late] == [True, False]
    assert [v.mark for v in late] == ["start", "stop"]
    assert {v.tuplet[:2] for v in group + late if v.tuplet} == {(3, 2)}
    assert all(v.tuplet is None for v in voice if v not in group + late)


def test_note_into_a_triplet_is_tied() -> None:
    third = F(1, 3)
    voice = values([(0, 1 + third), (1 + third, 2 * third), (2, 2)])
    assert [v.tie for v in voice] == ["start", "stop", None, None]
    assert [v.mark for v in voice] == [None, "start", "stop", None]


def test_half_beat_triplets_and_sextuplets_are_marked() -> None:
    sixth = F(1, 6)
    full = values([(n * sixth, sixth) for n in (0, 1, 2, 4, 5)] + [(1, 3)])
    assert [v.mark for v in full] == ["start", None, None, None, "stop", None]
    assert {v.tuplet and v.tuplet[:2] for v in full[:5]} == {(6, 4)}
    half = values([(0, F(1, 2)), *((F(n, 6), sixth) for n in (3, 4, 5)), (1, 3)])
    assert [v.mark for v in half] == [None, "start", None, "stop", None]
    assert {v.tuplet and v.tuplet[:2] for v in half[1:4]} == {(3, 2)}


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 12 * 12), st.integers(1, 60)), min_size=1, max_size=20),
    st.sampled_from(list(BEATS)),
    st.integers(0, 3),
)
def test_bars_are_complete_with_valid_note_values(
    rows: list[tuple[int, int]], metre: tuple[int, int], pickup: int
) -> None:
    line: list[Chord] = []
    size, sub = metre
    for onset, length in sorted(dict(rows).items()):
        beat, part = divmod(onset, 12)
        step = (3, 2)[beat % 2] if sub == 2 else 2  # quarters in even beats, sixths in odd ones
        at = F(beat) + F(part // step * step, 12)
        if line and line[-1].onset == at:
            continue
        if line and line[-1].end > at:
            line[-1] = line[-1]._replace(length=at - line[-1].onset)
        line.append(Chord(at, F(length, 12), (60,)))
    short = min(pickup, size - 1)
    bars = [(F(0), size - short), *((F(n * size - short), size) for n in range(1, 16))]
    written = Rhythm(line, bars, BEATS[metre]).bars()
    onsets = set()
    for (start, count), bar in zip(bars, written, strict=True):
        assert bar[0].begin == start
        assert bar[-1].end == start + count
        assert all(a.end == b.begin for a, b in zip(bar, bar[1:], strict=False))
        marks = [value.mark for value in bar if value.mark]
        assert marks == ["start", "stop"] * (len(marks) // 2)
        for value in bar:
            assert value.end > value.begin
            factor = F(*value.tuplet[:2]) if value.tuplet else 1
            quarters = (value.end - value.begin) * factor * (1 if sub == 2 else F(3, 2))
            whole_rest = value.chord is None and len(bar) == 1
            assert whole_rest or quarters.denominator in (1, 2, 4, 8)
            assert whole_rest or quarters.numerator in (1, 2, 3, 4, 6, 8, 12)
        onsets |= {v.begin for v in bar if v.chord and v.tie in (None, "start")}
    assert onsets == {chord.onset for chord in line}


def test_grace_notes_make_no_tuplets() -> None:
    """The other hand has the triplet with the note after the grace note."""
    line = [Chord(F(0), F(1), (48,)), Chord(F(1, 3), F(0), (59,), grace=True)]
    (bar,) = Rhythm(line, [(F(0), 4)], BEATS[4, 2]).bars()
    assert all(value.tuplet is None for value in bar)
    assert sum(value.end - value.begin for value in bar) == 4
