"""The algorithmic tasks for the training loop (paper, section "Algorithmic tasks").

Every optimiser step averages the losses of one batch of each bin. The released code trains all bins
from the first step. With ``curriculum_steps`` the bins are added one after another, the shortest
first.
"""

from collections.abc import Generator, Mapping
from dataclasses import asdict, field
from itertools import count
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from model.config import RELEASED_RSE, RSEConfig
from model.symbols import SymbolConfig, SymbolNetwork
from model.validation import Count, Fraction, NonNegativeInt, validated_dataclass
from training.algorithmic.data import BINS, EXAMPLES_PER_LENGTH, PROBLEMS, Examples, make_bins
from training.algorithmic.evaluate import draw_examples, score_examples
from training.loop.symbol_losses import algorithmic_accuracy, algorithmic_loss, shuffled_rows

DATA_SEED = 1  # seed of the data sets, which all runs share
VALIDATION_STREAM = 1  # part of the seed of validation examples; the training set has another seed


@validated_dataclass()
class AlgorithmicConfig:
    """Data, network and objective of an algorithmic task."""

    task: Literal["addition", "multiplication", "sorting"] = "addition"
    """Set by --task, which also selects the number of blocks."""
    rse: RSEConfig = field(default_factory=lambda: RELEASED_RSE)
    """The network. The paper's has 2 Beneš blocks for multiplication, 1 otherwise."""
    bins: tuple[int, ...] = BINS  # Sequence lengths of the bins, ascending powers of two
    batch_size: Count = 32  # Examples of each bin in an optimiser step
    curriculum_steps: NonNegativeInt = 0
    """Optimiser steps over which bins are added at equal intervals, shortest first. With 4 bins,
    the second is added after a quarter of these steps. 0: all bins from the start (released
    code)."""
    examples_per_length: Count = EXAMPLES_PER_LENGTH
    """Distinct training examples of each nominal length."""
    smoothing: Fraction = 0.01  # Total target probability of the wrong classes
    validation_examples: Count = 1024
    """Number of validation examples of each bin, drawn independently of the training set. Short
    examples also occur in the training set (released code)."""

    def __post_init__(self) -> None:
        if not self.bins or any(size < 2 or size & (size - 1) for size in self.bins):
            raise ValueError(f"bins must be powers of two, at least 2: {self.bins}")
        if list(self.bins) != sorted(set(self.bins)):
            raise ValueError(f"bins must be in ascending order: {self.bins}")

    def joined(self, step: int) -> tuple[int, ...]:
        """Return the bins that are trained at an optimiser step, counted from 0."""
        if step >= self.curriculum_steps:
            return self.bins
        return self.bins[: 1 + step * len(self.bins) // self.curriculum_steps]


class AlgorithmicTask:
    """An algorithmic task (``training.loop.loop.Task``)."""

    score = "accuracy"
    statistics = nn.Module()  # without buffers

    def __init__(self, config: AlgorithmicConfig) -> None:
        self.config = config
        self.problem = PROBLEMS[config.task]
        self.symbols = SymbolConfig(self.problem.vocabulary, self.problem.classes, config.rse)
        self.network: nn.Module = SymbolNetwork(self.symbols)

    def windows(self, steps: int) -> int:
        return self.config.batch_size * sum(len(self.config.joined(at)) for at in range(steps))

    def batches(self, seed: int, step: int = 0) -> Generator[dict[int, Examples], None, None]:
        """Return batches without end, starting with the batch of ``step``. Batches depend only on
        the seed and the step."""
        config = self.config
        rng = np.random.default_rng(DATA_SEED)
        data = make_bins(self.problem, rng, config.bins, config.examples_per_length)

        def examples(size: int, at: int) -> Examples:
            rows = shuffled_rows(len(data[size]), config.batch_size, at, seed, size)
            return data[size].take(rows)

        return ({size: examples(size, at) for size in config.joined(at)} for at in count(step))

    def loss(self, batch: dict[int, Examples]) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the mean loss of the bins, and loss and accuracy of the longest bin."""
        costs = []
        device = next(self.network.parameters()).device
        for examples in batch.values():
            inputs, targets = examples.tensors(device)
            logits = self.network(inputs)
            costs.append(algorithmic_loss(logits, targets, self.config.smoothing))
        parts = {
            "longest_loss": costs[-1].detach(),
            "longest_accuracy": algorithmic_accuracy(logits.detach(), targets),
        }
        return torch.stack(costs).mean(), parts

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Return the accuracy of symbols by bin, and of complete sequences for the longest bin."""
        config, scores = self.config, {}
        for size in config.bins:  # new examples, whose nominal length is that of the bin
            rng = np.random.default_rng((DATA_SEED, VALIDATION_STREAM, size))
            drawn = draw_examples(self.problem, rng, size, config.validation_examples)
            scores[size] = score_examples(network, drawn)
        longest = scores[config.bins[-1]]
        return {
            "accuracy": longest.symbol_accuracy,
            "error": 1 - longest.symbol_accuracy,
            "sequence_accuracy": longest.sequence_accuracy,
            **{f"accuracy_{size}": score.symbol_accuracy for size, score in scores.items()},
        }

    def card(self) -> dict[str, Any]:
        data = asdict(self.config)
        return {"name": data.pop("task"), "config": self.symbols.to_json(), "data": data}
