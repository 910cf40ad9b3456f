"""Words as symbols and their vectors; how a network is asked, and how its answers are counted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.lambada.novels import TextError
from training.lambada.reader import Reader, encode, vote
from training.lambada.words import MASK, Vocabulary, read_vectors
from training.loop.symbol_losses import ANSWER

PAIR = ("the", "owl"), [[0.5, -1], [2, 3.5]]


@pytest.mark.parametrize(
    ("text", "words", "vectors"),
    [
        ("the 0.5 -1\nowl 2 3.5\n", *PAIR),  # GloVe's
        ("2 2\nthe 0.5 -1 \nowl 2 3.5 \n", *PAIR),  # fastText's
        ("the 1 0\n1999 2 0\na 3 0\nno vector\n", ("the", "1999", "a"), [[1, 0], [2, 0], [3, 0]]),
    ],
)
def test_at_most_three_words_are_read_in_both_formats(
    tmp_path: Path, text: str, words: tuple[str, ...], vectors: list[list[float]]
) -> None:
    (tmp_path / "vectors").write_text(text)
    found, numbers = read_vectors(tmp_path / "vectors", max_words=3)
    assert found == words
    assert numbers.tolist() == vectors


@pytest.mark.parametrize("text", ["", "the 1 2 3\nowl 1 2\n", "once upon a time\n", "the 1 nan\n"])
def test_what_is_no_file_of_vectors_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "vectors").write_text(text)
    with pytest.raises(TextError, match="word vectors"):
        read_vectors(tmp_path / "vectors")


def test_symbols_tell_unknown_words_apart() -> None:
    vocabulary = Vocabulary(("the", "owl", "saw"), frozenset({"yan", "owl"}))
    encoded = encode(vocabulary, "the owl saw zed ; zed saw yan and zed".split())
    # `and` is the first of those that occur once (3 to 10), `zed` of those that occur more often
    # (11 to 18), `yan` of the names that occur once (19 to 26); `;` is not a word.
    assert encoded.inputs.tolist() == [35, 36, 37, 11, 1, 11, 37, 19, 3, 2]
    assert encoded.targets.tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert len(vocabulary) == 38


def peak(position: int, offset: int, height: float = 5.0) -> NDArray[np.float32]:
    """Scores of 16 positions with the best at a position of the passage."""
    scores = np.zeros(16, dtype=np.float32)
    scores[offset + position] = height
    return scores


def test_votes_are_for_words_and_add_up() -> None:
    words = "ada bea ada cid bea ada".split()
    assert vote([peak(0, 4)], [4], words)
    scores = np.zeros(16, dtype=np.float32)
    scores[[4, 6]] = 2.0  # ada twice
    scores[7] = 2.5  # cid alone is the best position, but not the best word
    scores[[0, 9]] = 9.0  # padding and the mask are no choice
    assert vote([scores], [4], words)
    assert not vote([scores, peak(3, 1, 9.0)], [4, 1], words)


VOCABULARY = Vocabulary(("ada", "bea", "cid", "said"))


class Pointer(nn.Module):
    """Chooses one word wherever it stands, and remembers what it was given."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.symbol = VOCABULARY.symbols[word]
        self.anchor = nn.Parameter(torch.zeros(1))

    def forward(self, symbols: Tensor) -> Tensor:
        self.seen = symbols
        logits = torch.zeros(*symbols.shape, 3)
        logits[:, :, ANSWER] = 9.0 * (symbols == self.symbol)
        return logits


PASSAGES = ["ada said bea said ada".split(), "cid said bea".split(), "said bea said bea".split()]


def test_right_are_those_whose_word_is_chosen_wherever_they_are_placed() -> None:
    pointer = Pointer("ada")
    assert Reader(pointer, VOCABULARY, 8, votes=0).right(PASSAGES).tolist() == [True, False, False]
    assert (pointer.seen[:, -1] == MASK).all()
    assert Reader(Pointer("bea"), VOCABULARY, 8, 0).right(PASSAGES).tolist() == [False, False, True]
    Reader(pointer, VOCABULARY, 8, votes=40).right(PASSAGES[:1])
    places = (pointer.seen == MASK).nonzero()[:, 1]
    assert len(places) == 40
    assert sorted(set(places.tolist())) == [4, 5, 6, 7]
    longer = ["ada", *["said"] * 9, "ada"]
    assert Reader(pointer, VOCABULARY, 8, votes=0).right([longer]).tolist() == [True]
    assert pointer.seen.shape == (1, 16)
