"""The interface between the training loop and a task: network, batches, loss, validation, card."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from training.loop.parallel import Share


class Task(Protocol):
    """What the training loop needs from a task."""

    network: nn.Module
    score: str
    """The metric of `validate` that selects the best weights; higher is better."""
    windows: int
    """Windows of audio or sequences of symbols in a batch, over all processes."""

    def batches(
        self, seed: int, step: int, share: Share
    ) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """An endless stream of one process's shares of the batches from `step` on.

        If it depends only on its arguments, a resumed run equals an uninterrupted one.
        """

    def loss(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Loss and its parts."""

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Metrics of a network (with averaged weights)."""

    def card(self) -> dict[str, Any]:
        """The card of the weights: configuration, data, licences."""


class Objective(nn.Module):
    """A task's loss as a module, which DDP wraps to average the gradients of its network."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.network = task.network
        self._loss = task.loss

    def forward(self, batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        return self._loss(batch)
