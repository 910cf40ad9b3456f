"""Muon (Jordan et al., 2024): steps of matrices with all singular values alike.

The momentum of a matrix is replaced by the nearest matrix with orthonormal rows or columns, up to
a few tenths, and scaled to the size of an Adam step (Liu et al., 2025), so one learning rate fits
matrices and all other parameters, which follow RAdam.
"""

from typing import Any

import torch
from torch import Tensor, nn

from model.precision import fastest_dtype
from model.rse import ResidualShuffleExchange

MOMENTUM = 0.95
ADAM_SIZE = 0.2  # root mean square of a typical Adam step at rate 1
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that drives singular values to 1


class Muon(torch.optim.RAdam):
    """RAdam, but Muon for groups that set ``orthogonal``; weight decay is decoupled."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; matrices lose theirs."""
        for group in self.param_groups:
            for parameter in group["params"] if group.get("orthogonal") else ():
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())  # RAdam looks for it when it is loaded
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
                update = orthogonal(gradient.lerp(momentum, MOMENTUM))
                size = ADAM_SIZE * max(parameter.shape) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(update, alpha=group["lr"] * size)
                parameter.grad = None
        super().step()


def orthogonal(matrix: Tensor) -> Tensor:
    """(rows, columns) -> roughly the nearest matrix with orthonormal rows or columns."""
    a, b, c = COEFFICIENTS
    exact, matrix = matrix.dtype, matrix.to(fastest_dtype(matrix.device))
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if tall else matrix) / matrix.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.t() if tall else x).to(exact)


def muon_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The matrices of shuffle-exchange networks, other matrices, the rest without decay."""
    inner = {
        id(parameter)
        for module in network.modules()
        if isinstance(module, ResidualShuffleExchange)
        for parameter in module.parameters()
    }
    trained = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    return [
        {
            "params": [p for p in matrices if id(p) in inner],
            "weight_decay": weight_decay,
            "orthogonal": True,
        },
        {"params": [p for p in matrices if id(p) not in inner], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
