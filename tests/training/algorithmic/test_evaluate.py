"""Scores against length."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.algorithmic.data import PROBLEMS, Examples
from training.algorithmic.evaluate import (
    draw_examples,
    score_examples,
)


class Oracle(nn.Module):
    """Sorts, padding left in place; spoils one symbol of every second sequence if asked to."""

    def __init__(self, spoil: bool = False) -> None:
        super().__init__()
        self.device = nn.Parameter(torch.zeros(1))
        self.spoil = spoil

    def forward(self, symbols: Tensor) -> Tensor:
        out = symbols.where(symbols != 0, 99).sort(dim=1).values
        out = out.where(out != 99, 0)
        if self.spoil:
            out[::2, 0] = out[::2, 0] % 11 + 1
        return F.one_hot(out, 12).float()


def test_symbols_are_pooled_and_sequences_counted() -> None:
    examples = draw_examples(PROBLEMS["sorting"], np.random.default_rng(0), 16, 50)
    score = score_examples(Oracle(spoil=True), examples)
    assert score.sequence_accuracy == 0.5
    assert score.symbol_accuracy == pytest.approx(1 - 25 / (50 * 16))


def test_padding_counts_only_where_it_is_taken_for_a_symbol() -> None:
    inputs = np.array([[3, 1, 0, 0]], dtype=np.uint8)
    right = Examples(inputs, np.array([[1, 3, 0, 0]], dtype=np.uint8))
    longer = Examples(inputs, np.array([[1, 3, 5, 0]], dtype=np.uint8))
    assert score_examples(Oracle(), right).symbol_accuracy == 1
    assert score_examples(Oracle(), longer).symbol_accuracy == pytest.approx(2 / 3)
