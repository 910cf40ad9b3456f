"""Which word the network's scores stand for."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.lambada.encoding import Encoded, encode_clean, encode_released
from training.lambada.voting import vote_clean, vote_released
from training.lambada.words.vocabulary import Vocabulary

WORDS = "ada bea ada cid bea ada".split()  # answer: ada, at positions 0 and 2


@pytest.fixture
def encoded() -> Encoded:
    return encode_released(Vocabulary.released(WORDS, vectors=False), WORDS)


def peak(position: int, offset: int, height: float = 5.0) -> NDArray[np.float32]:
    """Scores of 16 positions with the best at a position of the passage."""
    scores = np.zeros(16, dtype=np.float32)
    scores[offset + position] = height
    return scores


def released(encoded: Encoded, positions: list[int], offset: int = 4) -> bool:
    scores = [peak(position, offset) for position in positions]
    return vote_released(scores, [offset] * len(positions), WORDS, encoded)


def test_released_votes_are_for_positions_and_those_for_padding_are_none(encoded: Encoded) -> None:
    assert released(encoded, [2, 2, 1])
    assert not released(encoded, [2, 1, 1])
    assert released(encoded, [2, -3, -3, 9])
    assert not released(encoded, [-3, -3])


def test_the_first_position_is_never_right_in_the_released_code(encoded: Encoded) -> None:
    assert not released(encoded, [0])
    clean = encode_clean(Vocabulary.clean(WORDS, 0), WORDS)
    assert vote_clean([peak(0, 4)], [4], WORDS, clean)


def test_clean_votes_are_for_words_and_add_up() -> None:
    clean = encode_clean(Vocabulary.clean(WORDS, 0), WORDS)
    scores = np.zeros(16, dtype=np.float32)
    scores[[4, 6]] = 2.0  # ada twice
    scores[7] = 2.5  # cid alone is the best position, but not the best word
    scores[[0, 9]] = 9.0  # padding and the mask are no choice
    assert vote_clean([scores], [4], WORDS, clean)
    assert not vote_clean([scores, peak(3, 1, 9.0)], [4, 1], WORDS, clean)
