"""Hands and voices."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.score.quantise import Placed
from service.score.staves import MOST_VOICES, Chord, hands, voices


def test_two_hands_far_apart() -> None:
    pitch = [36, 43, 72, 76, 40, 74]
    placed = [Placed(n, Fraction(n // 4), Fraction(1)) for n in range(6)]
    assert hands(placed, pitch) == [False, False, True, True, False, True]


@given(
    st.lists(st.tuples(st.integers(0, 24), st.integers(1, 12), st.integers(40, 80)), max_size=25)
)
def test_voices_do_not_overlap_and_keep_every_note(rows: list[tuple[int, int, int]]) -> None:
    notes = [Chord(Fraction(a, 4), Fraction(b, 4), (str(p),), (p,)) for a, b, p in rows]
    lines = voices(notes)
    assert len(lines) <= MOST_VOICES
    for line in lines:
        assert all(a.onset + a.length <= b.onset for a, b in pairwise(line))
        assert all(chord.length > 0 for chord in line)
    kept = {(chord.onset, pitch) for line in lines for chord in line for pitch in chord.pitches}
    assert kept == {(note.onset, note.pitches[0]) for note in notes}
