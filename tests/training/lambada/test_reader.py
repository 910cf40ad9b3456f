"""Tests of word vectors, of words as symbols, and of the choice of answers."""

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

TWO_WORDS = ("the", "owl"), [[0.5, -1], [2, 3.5]]


@pytest.mark.parametrize(
    ("text", "words", "vectors"),
    [
        ("the 0.5 -1\nowl 2 3.5\n", *TWO_WORDS),  # GloVe
        ("2 2\nthe 0.5 -1 \nowl 2 3.5 \n", *TWO_WORDS),  # fastText
        (", 1 0\n. . . 2 0\n", (",", ". . ."), [[1, 0], [2, 0]]),  # words with spaces in GloVe
        ("the 1 0\n1999 2 0\na 3 0\nno vector\n", ("the", "1999", "a"), [[1, 0], [2, 0], [3, 0]]),
    ],
)
def test_vectors_are_read_up_to_the_maximum(
    tmp_path: Path, text: str, words: tuple[str, ...], vectors: list[list[float]]
) -> None:
    (tmp_path / "vectors").write_text(text)
    actual_words, actual_vectors = read_vectors(tmp_path / "vectors", max_words=3)
    assert actual_words == words
    assert actual_vectors.tolist() == vectors


@pytest.mark.parametrize("text", ["", "the 1 2 3\nowl 1 2\n", "once upon a time\n", "the 1 nan\n"])
def test_invalid_vectors_are_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "vectors").write_text(text)
    with pytest.raises(TextError, match="word vector"):
        read_vectors(tmp_path / "vectors")


def test_unknown_words_have_distinct_symbols() -> None:
    vocabulary = Vocabulary(("the", "owl", "saw"), frozenset({"yan", "owl"}))
    encoded = encode(vocabulary, "the owl saw zed ; zed saw yan and zed".split())
    # Unknown words that occur once have the symbols 3 to 10 (`and`), and those that occur more
    # often 11 to 18 (`zed`). Unknown names that occur once have 19 to 26 (`yan`). `;` is not a
    # word.
    assert encoded.inputs.tolist() == [35, 36, 37, 11, 1, 11, 37, 19, 3, 2]
    assert encoded.targets.tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert len(vocabulary) == 38


def peak(position: int, offset: int, height: float = 5.0) -> NDArray[np.float32]:
    """Return scores of 16 positions with a peak at a position of the passage."""
    scores = np.zeros(16, dtype=np.float32)
    scores[offset + position] = height
    return scores


def test_votes_are_summed_per_word() -> None:
    words = "ada bea ada cid bea ada".split()
    assert vote([peak(0, 4)], [4], words)
    scores = np.zeros(16, dtype=np.float32)
    scores[[4, 6]] = 2.0  # `ada` twice
    scores[7] = 2.5  # `cid` is at the best position, but is not the best word.
    scores[[0, 9]] = 9.0  # Padding and the mask cannot be chosen.
    assert vote([scores], [4], words)
    assert not vote([scores, peak(3, 1, 9.0)], [4, 1], words)


VOCABULARY = Vocabulary(("ada", "bea", "cid", "said"))


class Pointer(nn.Module):
    """Network that chooses all occurrences of a word, and records its inputs in ``seen``."""

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


def test_answers_are_correct_at_any_position() -> None:
    pointer = Pointer("ada")
    assert Reader(pointer, VOCABULARY, 8, votes=0).right(PASSAGES).tolist() == [True, False, False]
    assert (pointer.seen[:, -1] == MASK).all()
    assert Reader(Pointer("bea"), VOCABULARY, 8, 0).right(PASSAGES).tolist() == [False, False, True]
    Reader(pointer, VOCABULARY, 8, votes=40).right(PASSAGES[:1])
    mask_positions = (pointer.seen == MASK).nonzero()[:, 1]
    assert len(mask_positions) == 40
    assert sorted(set(mask_positions.tolist())) == [4, 5, 6, 7]
    longer = ["ada", *["said"] * 9, "ada"]
    assert Reader(pointer, VOCABULARY, 8, votes=0).right([longer]).tolist() == [True]
    assert pointer.seen.shape == (1, 16)


def test_invalid_vocabulary_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    for text in ("[]", '{"words": ["owl"]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a saved vocabulary"):
            Vocabulary.load(path)
