"""Losses over symbols: by hand, and against the released code's training trace."""

import pytest
import torch

from training.loop.symbol_losses import (
    algorithmic_accuracy,
    algorithmic_loss,
    lambada_accuracy,
    lambada_loss,
    pointer_sum_loss,
)


def test_the_best_prediction_costs_nothing() -> None:
    targets = torch.tensor([[1, 2, 0, 0]])
    best = torch.full((1, 4, 4), 0.01 / 3)
    best.scatter_(-1, targets.unsqueeze(-1), 0.99)
    assert algorithmic_loss(best.log(), targets).item() == pytest.approx(0, abs=1e-6)
    assert algorithmic_loss((best + 0.1).log(), targets) > 0.01


def test_padding_weighs_a_hundredth() -> None:
    targets = torch.tensor([[1, 2, 0, 0]])
    wrong = torch.zeros(1, 4, 4)
    wrong[0, :, 3] = 10.0
    fair = torch.full((1, 4, 4), 0.01 / 3)
    fair.scatter_(-1, targets.unsqueeze(-1), 0.99)
    in_word, in_padding = fair.log().clone(), fair.log().clone()
    in_word[0, 1] = wrong[0, 1]
    in_padding[0, 2] = wrong[0, 2]
    ratio = algorithmic_loss(in_word, targets) / algorithmic_loss(in_padding, targets)
    assert ratio.item() == pytest.approx(100, rel=1e-3)


def test_algorithmic_accuracy_counts_where_either_is_not_padding() -> None:
    targets = torch.tensor([[1, 2, 0, 0], [1, 1, 1, 1]])
    predicted = torch.tensor([[1, 1, 3, 0], [1, 1, 1, 0]])
    logits = torch.nn.functional.one_hot(predicted, 4).float()
    assert algorithmic_accuracy(logits, targets).item() == pytest.approx((1 / 3 + 3 / 4) / 2)


def test_the_answers_of_a_passage_share_its_mass() -> None:
    targets = torch.tensor([[1, 2, 2, 0]])
    shares = torch.tensor([[0.025, 0.475, 0.475, 0.025]])
    logits = torch.randn(1, 4, 3)
    logits[:, :, 2] = shares.log() + 5
    least = -(shares * shares.log()).sum().item()
    assert lambada_loss(logits, targets, 0.1).item() == pytest.approx(least)
    assert lambada_accuracy(logits, targets) == 1
    logits[0, 0, 2] += 9
    assert lambada_loss(logits, targets, 0.1) > least
    assert lambada_accuracy(logits, targets) == 0


def test_a_passage_without_its_answer_has_a_finite_loss() -> None:
    assert lambada_loss(torch.zeros(2, 4, 3), torch.ones(2, 4, dtype=torch.long)).isfinite()


def test_the_pointer_may_choose_any_place_of_the_answer() -> None:
    targets = torch.tensor([[0, 1, 2, 1, 2, 1]])
    scores = torch.tensor([[9.0, 0.0, 1.0, 0.0, 2.0, 1.0]])  # padding, which must not count, first
    logits = torch.stack([torch.zeros_like(scores), torch.ones_like(scores), scores], dim=-1)
    shares = scores[0, 1:].softmax(0)
    expected = -(shares[1] + shares[3]).log()
    torch.testing.assert_close(pointer_sum_loss(logits, targets), expected)
