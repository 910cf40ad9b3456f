"""Optimiser, learning rate schedule and running average of the training loop."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from training.loop.config import LoopConfig
from training.loop.muon import Muon, muon_groups
from training.loop.released_optim import ReleasedRAdam, released_groups


def make_optimizer(network: nn.Module, config: LoopConfig) -> torch.optim.Optimizer:
    """The optimiser named by ``LoopConfig.optimizer``, without frozen parameters."""
    if config.optimizer == "released":
        groups = released_groups(network, config.weight_decay)
        return ReleasedRAdam(groups, lr=config.learning_rate)
    if config.optimizer == "muon":
        groups = muon_groups(network, config.weight_decay)
        return Muon(groups, lr=config.learning_rate, decoupled_weight_decay=True)
    return torch.optim.RAdam(
        parameter_groups(network, config.weight_decay),
        lr=config.learning_rate,
        decoupled_weight_decay=True,
    )


def running_average(decay: float) -> Callable[[Any, Any, Any], None]:
    """An ``AveragedModel`` update that averages floats and copies integers (indices, counts)."""
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)

    def update(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        if averaged[0].is_floating_point():
            average(averaged, current, count)
        else:
            torch._foreach_copy_(averaged, current)

    return update


def schedule(progress: float, warmup: float) -> float:
    """Factor of the peak learning rate: a linear rise, then a linear fall to zero."""
    if progress < warmup:
        return max(0.02, progress / warmup)
    return (1 - progress) / (1 - warmup)


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay for matrices and kernels only (released code: names with CvK)."""
    trained = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    others = [p for p in trained if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
