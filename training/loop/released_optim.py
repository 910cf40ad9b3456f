"""The optimiser of the authors' released code, a variant of RAdam.

Unlike RAdam (Liu et al., ICLR 2020) it clips each parameter's gradient by that parameter's own
history, takes the momentum of the *normalised* gradient and adds epsilon outside the root.
Embeddings follow a different rule, for sparse gradients.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

CLIP_FACTOR = 3.0  # of the running root of the squared gradient
CLIP_FLOOR = 0.01  # norm that is never clipped; the limit for the first gradient
RECTIFIABLE = 5.0  # minimum length of the moving average for a tractable variance


class ReleasedRAdam(Optimizer):
    """RAdam as the released code computes it.

    Groups may set ``sparse`` for the embedding rule: momentum of the raw gradient, divided by the
    root only once the variance is tractable. Weight decay is decoupled and part of the update.
    State per parameter: step, m (momentum), v (mean squared gradient).
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "sparse": False},
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["m"] = torch.zeros_like(parameter)
            state["v"] = torch.zeros_like(parameter)
        state["step"] += 1
        m, v, step = state["m"], state["v"], state["step"]
        beta1, beta2 = group["betas"]
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        gradient = parameter.grad
        assert gradient is not None
        # The history of the previous steps, with this step's correction.
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
    """RAdam's variance rectification at a step counted from 1; None while it is intractable."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)
    if length < RECTIFIABLE:
        return None
    grown = (length - 4) * (length - 2) * longest
    return math.sqrt(grown / ((longest - 4) * (longest - 2) * length))
