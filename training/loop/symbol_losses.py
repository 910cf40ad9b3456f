"""Losses, metrics (as in the authors' released code) and batches of the symbol tasks."""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from training.arrays import I64

PADDING = 0  # symbol and class of positions after the end of a sequence
BATCH_SYMBOLS = 32_768  # maximum number of symbols in a batch without gradients
PADDING_WEIGHT = 0.01  # weight of a padding position; the weight of others is 1
ANSWER = 2  # class of positions with the answer in LAMBADA; 1 is the class of other words


def algorithmic_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.01) -> Tensor:
    """Return the weighted, smoothed cross-entropy minus its minimum, averaged over batch and length
    (released code). Padding is predicted like any other class, but has the weight PADDING_WEIGHT.
    The weights of each example are divided by their mean.

    Args:
        logits: (batch, length, classes) float.
        targets: (batch, length) integer classes, PADDING after the end.
        smoothing: total target probability of the wrong classes.
    """
    classes = logits.shape[-1]
    rest = smoothing / (classes - 1)  # target probability of each wrong class
    logarithms = F.log_softmax(_precise(logits), dim=-1)  # (batch, length, classes)
    right = logarithms.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    wrong = logarithms.sum(dim=-1) - right
    entropy = -(1 - smoothing) * right - rest * wrong  # (batch, length)
    weights = torch.where(targets == PADDING, PADDING_WEIGHT, 1.0)
    weights = weights / weights.mean(dim=1, keepdim=True)
    minimum = -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(rest + 1e-20)
    return ((entropy - minimum) * weights).mean()


def lambada_loss(logits: Tensor, targets: Tensor, smoothing: float = 0.1) -> Tensor:
    """Return the cross-entropy over positions, averaged over the batch (released code). The
    occurrences of the answer share the target probability equally.

    Args:
        logits: (batch, length, classes) float, of which only class ANSWER is used.
        targets: (batch, length) integer classes.
        smoothing: target probability that is spread over all positions, including padding.
    """
    scores = _precise(logits[:, :, ANSWER])
    answers = (targets == ANSWER).to(scores.dtype)
    shares = answers / answers.sum(dim=1, keepdim=True).clamp(min=1)  # (batch, length)
    shares = (1 - smoothing) * shares + smoothing / targets.shape[1]
    return F.cross_entropy(scores, shares)


def pointer_sum_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative logarithm of the total probability of the answer's occurrences, averaged
    over the batch (Kadlec et al. 2016). Padding has no probability. Unlike :func:`lambada_loss`,
    which has the same shapes, the loss does not depend on how the occurrences share their
    probability. Every passage must contain its answer."""
    scores = _precise(logits[:, :, ANSWER])
    words = scores.masked_fill(targets == PADDING, -math.inf).logsumexp(dim=1)
    answers = scores.masked_fill(targets != ANSWER, -math.inf).logsumexp(dim=1)
    return (words - answers).mean()


def lambada_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the share of passages whose most probable position is right (released code)."""
    best = logits[:, :, ANSWER].argmax(dim=1, keepdim=True)  # (batch, 1)
    return (targets.gather(1, best) == ANSWER).float().mean()


def algorithmic_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the fraction of correct symbols among positions where prediction or target is not
    padding, averaged over examples (released code)."""
    predicted = logits.argmax(dim=-1)
    counted = (targets != PADDING) | (predicted != PADDING)
    right = ((predicted == targets) & counted).sum(dim=1)
    return (right / counted.sum(dim=1).clamp(min=1)).mean()


def _precise(scores: Tensor) -> Tensor:
    """Convert to at least float32, because bfloat16 is too coarse for sums of exponentials."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def shuffled_rows(size: int, batch_size: int, step: int, *seed: int) -> I64:
    """Return the indexes, (batch_size,), of the examples in the batch of a step, counted from 0.
    Every epoch has another order."""
    numbers = range(step * batch_size, (step + 1) * batch_size)
    return np.array([_order(size, *seed, number // size)[number % size] for number in numbers])


@lru_cache(16)
def _order(size: int, *seed: int) -> I64:
    return np.random.default_rng(seed).permutation(size)
