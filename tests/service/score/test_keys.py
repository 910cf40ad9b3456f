"""Keys of scales, in all transpositions."""

import numpy as np
import pytest

from service.score.keys import Key, key_of

MAJOR = np.array([0, 2, 4, 5, 7, 9, 11, 12, 0, 4, 7])


@pytest.mark.parametrize("tonic", range(12))
def test_major_scales(tonic: int) -> None:
    key = key_of(60 + tonic + MAJOR, np.ones(len(MAJOR)))
    assert not key.minor
    assert key.fifths % 12 == tonic * 7 % 12
    assert -6 <= key.fifths <= 6


def test_names_are_those_of_midi() -> None:
    assert Key(0, minor=True).name == "Am"
    assert Key(-3, minor=False).name == "Eb"
    assert Key(3, minor=True).name == "F#m"
    assert Key(4, minor=True).name == "C#m"
    assert Key(-5, minor=True).name == "Bbm"


def test_silence_is_in_c() -> None:
    assert key_of(np.zeros(0, int), np.zeros(0)) == Key(0, minor=False)
