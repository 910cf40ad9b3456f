"""The residual switch unit arranged for inference: fewer passes, the same answers.

Unlike ``model.switch``: matrix products use the fastest type of the processor, the residual stream
stays float32; h is folded into W; residual, scale and permutation are one pass that writes every
element where the next layer reads it. There are no gradients. Weights are copied, so later changes
to the network have no effect.

Thread-safety: may be called from several threads at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from model.shuffle import Direction, places
from model.switch import (
    FEATURE_NORM_EPSILON,
    FeatureNorm,
    ResidualSwitchUnit,
    activate,
)


class FastSwitch:
    """A residual switch unit with its weights ready for use."""

    halves = True  # whether it has :meth:`half`

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        """dtype: of the matrix products."""
        self.dtype = dtype
        self.activation = unit.activation
        scale = 1.0 if unit.residual_scale == "none" else unit.update_scale
        self.z = by_input(unit.z.weight.detach().to(dtype))
        self.w = by_input((unit.w.weight.detach().float() * scale).to(dtype))
        self._z_by_input, self._w_by_input = self.z.t(), self.w.t()
        self.b = (unit.w.bias.detach().float() * scale).to(dtype)
        match unit.residual_scale:  # factor of the input
            case "learned":
                residual = torch.sigmoid(unit.residual_speed * unit.s.detach().float())
            case "one":
                residual = torch.ones_like(self.b, dtype=torch.float32)
            case _:
                residual = torch.zeros_like(self.b, dtype=torch.float32)
        self.residual = residual  # (2m,)
        self._computed: slice | None = None  # of the 2m outputs; None for all
        # Called for each of hundreds of small products: functions, not modules.
        self._norm: Callable[[Tensor], Tensor] = unit.norm
        if isinstance(unit.norm, FeatureNorm):
            width = (len(self.z),)
            self._norm = partial(torch.layer_norm, normalized_shape=width, eps=FEATURE_NORM_EPSILON)
        self._activate: Callable[[Tensor], Tensor]
        self._activate = F.gelu if self.activation == "gelu" else partial(activate, self.activation)

    def __call__(self, x: Tensor, direction: Direction) -> Tensor:
        """x: (batch, n, m) float32, contiguous -> the same shape, permuted."""
        batch, n, maps = x.shape
        if direction == "none":
            return self.units(x.view(-1, 2 * maps)).view(batch, -1, maps)
        out = torch.empty_like(x)
        place = places(out, direction)
        pairs = x.view(place.shape)
        update = self._update(pairs.flatten(1, -3).flatten(2)).view(pairs.shape)
        torch.addcmul(update, pairs, self.residual.view(2, -1), out=place)
        return out

    def half(self, second: bool) -> FastSwitch:
        """The same unit, which computes one output of a pair: (batch, n, m) -> (batch, n / 2, m)
        in the order of the pairs."""
        maps = len(self.residual) // 2
        part = slice(maps, 2 * maps) if second else slice(maps)
        half = copy(self)
        half._computed = part
        half.w, half.b, half.residual = self.w[part], self.b[part], self.residual[part]
        half._w_by_input = half.w.t()
        return half

    def units(self, pairs: Tensor) -> Tensor:
        """(pairs, 2m) float32 -> the unit's output for each, (pairs, 2m)."""
        kept = pairs[:, self._computed] if self._computed else pairs
        if self.dtype is not torch.float32:
            return torch.addcmul(self._update(pairs), kept, self.residual)
        hidden = self._activate(self._norm(torch.mm(pairs, self._z_by_input)))
        # The product adds to the residual in place: neither it nor the bias is copied first.
        out = torch.addcmul(self.b, kept, self.residual)
        return out.addmm_(hidden, self._w_by_input)

    def _update(self, rows: Tensor) -> Tensor:
        """(..., pairs, 2m) -> h * c."""
        hidden = self._norm(F.linear(rows.to(self.dtype), self.z))
        return F.linear(self._activate(hidden).to(self.dtype), self.w, self.b)


def by_input(weight: Tensor) -> Tensor:
    """The same matrix, its columns side by side in memory: float32 products of few rows would
    spend most of their time on transposing it."""
    return weight.t().contiguous().t() if weight.dtype is torch.float32 else weight
