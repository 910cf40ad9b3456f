"""Optimiser, learning rate schedule and running average of the training loop.

torch.optim.Muon is not used because it accepts only matrices and always multiplies in bfloat16.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from model.rse import ResidualShuffleExchange
from model.storage import fastest_dtype

CLIP_FACTOR = 3.0
"""Maximum norm of a gradient, as a multiple of the running root mean square of this norm."""
CLIP_FLOOR = 0.01  # added to the maximum norm, so it is the limit of the first gradient
RECTIFIABLE = 5.0  # minimum length of the moving average for a tractable variance


class ReleasedRAdam(Optimizer):
    """The optimiser of the authors' released code, a variant of RAdam.

    Unlike RAdam (Liu et al., ICLR 2020) it limits the gradient of each parameter relative to the
    earlier gradients of this parameter, averages the *normalised* gradient as momentum, and adds
    epsilon to the root after the bias correction, not before it. Weight decay is decoupled.

    Groups may set ``sparse`` for the rule of embeddings: the momentum is an average of the limited
    gradient, and is divided by the root only if the variance is tractable. The state of each
    parameter has ``step``, ``m`` (momentum) and ``v`` (mean squared gradient).
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "sparse": False})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state |= {"step": 0, "m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
        state["step"] += 1
        m, v, step = state["m"], state["v"], state["step"]
        beta1, beta2 = group["betas"]
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        gradient = parameter.grad
        assert gradient is not None
        # v does not yet include this gradient, but its bias correction counts this step.
        limit = CLIP_FACTOR * (v.sum() / correction2).sqrt() + CLIP_FLOOR
        norm = torch.linalg.vector_norm(gradient).clamp(min=1e-30)
        gradient = gradient * (limit / norm).clamp(max=1)

        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        deviation = (v / correction2).sqrt() + group["eps"]
        rectifier = rectification(step, beta2)
        if group["sparse"]:
            m.mul_(beta1).add_(gradient, alpha=1 - beta1)
            update = m / correction1
            if rectifier is not None:
                update = rectifier * update / deviation
        else:
            m.mul_(beta1).addcdiv_(gradient, deviation, value=1 - beta1)
            update = m * ((1.0 if rectifier is None else rectifier) / correction1)
        if group["weight_decay"]:
            update = update + group["weight_decay"] * parameter
        parameter.sub_(update, alpha=group["lr"])


def rectification(step: int, beta2: float) -> float | None:
    """Return RAdam's variance rectification at a step, counted from 1. Return None while the
    variance is intractable."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length < RECTIFIABLE:
        return None
    numerator = (length - 4) * (length - 2) * longest
    return math.sqrt(numerator / ((longest - 4) * (longest - 2) * length))


MOMENTUM = 0.95
ADAM_SIZE = 0.2  # root mean square of a typical Adam step at rate 1
ITERATIONS = 5  # number of times that ``orthogonal`` applies the polynomial
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd polynomial that moves the singular values towards 1."""


class Muon(torch.optim.RAdam):
    """RAdam, but Muon (Jordan et al., 2024) for groups that set ``orthogonal``.

    Muon replaces the momentum of a matrix by roughly the nearest matrix with orthonormal rows or
    columns. The result is scaled to the size of an Adam step (Liu et al., 2025), so the same
    learning rate suits matrices and all other parameters. Weight decay is decoupled.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if not group.get("orthogonal"):
                continue
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())  # required by RAdam's load_state_dict
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
                update = orthogonal(gradient.lerp(momentum, MOMENTUM))
                size = ADAM_SIZE * max(parameter.shape) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(update, alpha=group["lr"] * size)
                parameter.grad = None
        super().step()


def orthogonal(matrix: Tensor) -> Tensor:
    """Return roughly the nearest matrix, of the same shape, with orthonormal rows or columns. The
    singular values of the result are 1 to within a few tenths."""
    a, b, c = COEFFICIENTS
    dtype, matrix = matrix.dtype, matrix.to(fastest_dtype(matrix.device))
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if is_tall else matrix) / matrix.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.t() if is_tall else x).to(dtype)


def parameter_groups(
    network: nn.Module, weight_decay: float, optimizer: str
) -> list[dict[str, Any]]:
    """Return the groups of trained parameters: those with two or more axes, such as matrices and
    kernels, with weight decay (the released code selects kernels by names that contain CvK), and
    all others without. "muon" adds a
    first group for the matrices of shuffle-exchange networks. "released" adds a last group for the
    embedding, which follows the sparse rule and does not decay."""
    special = {"muon": ResidualShuffleExchange, "released": nn.Embedding}.get(optimizer, ())
    modules = [module for module in network.modules() if isinstance(module, special)]
    inner = {id(parameter) for module in modules for parameter in module.parameters()}
    trained = [p for p in network.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in matrices if id(p) not in inner], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    special_matrices = [p for p in matrices if id(p) in inner]
    if optimizer == "muon":
        group = {"params": special_matrices, "weight_decay": weight_decay, "orthogonal": True}
        groups.insert(0, group)
    elif optimizer == "released":
        groups.append({"params": special_matrices, "weight_decay": 0.0, "sparse": True})
    return groups


def make_optimizer(network: nn.Module, kind: str, rate: float, weight_decay: float) -> Optimizer:
    """Return the optimiser named by ``LoopConfig.optimizer``, without frozen parameters."""
    groups = parameter_groups(network, weight_decay, kind)
    if kind == "released":
        return ReleasedRAdam(groups, lr=rate)
    optimizer = Muon if kind == "muon" else torch.optim.RAdam
    return optimizer(groups, lr=rate, decoupled_weight_decay=True)


def running_average(decay: float) -> Callable[[Any, Any, Any], None]:
    """Return an update function for ``AveragedModel`` that averages floats and copies integers
    (indexes and counts)."""
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)

    def update(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        if averaged[0].is_floating_point():
            average(averaged, current, count)
        else:
            torch._foreach_copy_(averaged, current)

    return update


def schedule(progress: float, warmup: float) -> float:
    """Return the learning rate as a fraction of its peak: a linear rise to 1, but at least
    0.02, then a linear fall to 0."""
    if progress < warmup:
        return max(0.02, progress / warmup)
    return (1 - progress) / (1 - warmup)
