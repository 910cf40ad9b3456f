"""How a network is asked, and how its answers to several placings are counted."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.lambada.reader import Reader, vote
from training.lambada.words import MASK, Vocabulary
from training.loop.symbol_losses import ANSWER

WORDS = "ada bea ada cid bea ada".split()  # answer: ada, at positions 0 and 2


def peak(position: int, offset: int, height: float = 5.0) -> NDArray[np.float32]:
    """Scores of 16 positions with the best at a position of the passage."""
    scores = np.zeros(16, dtype=np.float32)
    scores[offset + position] = height
    return scores


def test_votes_are_for_words_and_add_up() -> None:
    assert vote([peak(0, 4)], [4], WORDS)
    scores = np.zeros(16, dtype=np.float32)
    scores[[4, 6]] = 2.0  # ada twice
    scores[7] = 2.5  # cid alone is the best position, but not the best word
    scores[[0, 9]] = 9.0  # padding and the mask are no choice
    assert vote([scores], [4], WORDS)
    assert not vote([scores, peak(3, 1, 9.0)], [4, 1], WORDS)


VOCABULARY = Vocabulary(("ada", "bea", "cid", "said"))


class Pointer(nn.Module):
    """Chooses one word wherever it stands, and remembers what it was given."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.symbol = VOCABULARY.symbols[word]
        self.anchor = nn.Parameter(torch.zeros(1))
        self.seen: list[Tensor] = []

    def forward(self, symbols: Tensor) -> Tensor:
        self.seen.append(symbols)
        logits = torch.zeros(*symbols.shape, 3)
        logits[:, :, ANSWER] = 9.0 * (symbols == self.symbol)
        return logits


def make_reader(word: str, votes: int = 0) -> tuple[Reader, Pointer]:
    pointer = Pointer(word)
    return Reader(pointer, VOCABULARY, 8, votes), pointer


PASSAGES = ["ada said bea said ada".split(), "cid said bea".split(), "said bea said bea".split()]


def test_right_are_those_whose_word_is_chosen() -> None:
    assert make_reader("ada")[0].right(PASSAGES).tolist() == [True, False, False]
    assert make_reader("bea")[0].right(PASSAGES).tolist() == [False, False, True]


def test_a_passage_ends_at_the_last_position_or_is_placed_at_random() -> None:
    reader, pointer = make_reader("ada")
    reader.right(PASSAGES)
    assert (pointer.seen[0][:, -1] == MASK).all()
    reader, pointer = make_reader("ada", votes=40)
    reader.right(PASSAGES[:1])
    places = (pointer.seen[0] == MASK).nonzero()[:, 1]
    assert len(places) == 40
    assert sorted(set(places.tolist())) == [4, 5, 6, 7]


def test_longer_passages_take_more_positions() -> None:
    passage = ["ada", *["said"] * 9, "ada"]
    reader, pointer = make_reader("ada")
    assert reader.right([passage]).tolist() == [True]
    assert pointer.seen[0].shape == (1, 16)
