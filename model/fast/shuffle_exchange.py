"""The Residual Shuffle-Exchange network arranged for inference: the same results, faster.

* Switch units whose outputs are not used are skipped (``model.fast.pruning``).
* Matrix products use the fastest type of the processor. The residual stream stays float32.
* h is folded into W. Residual, scale and permutation are one pass, which writes every element to
  the position from which the next layer reads it.

There are no gradients. Weights are copied, so later changes to the network have no effect. The
length of a sequence must be a power of two. Only the paper's units and the released shuffle are
supported. Thread-safe.
"""

from __future__ import annotations

from copy import copy
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from model.fast.pruning import Direction, prune
from model.rse import BenesBlock, ResidualShuffleExchange
from model.switch import FEATURE_NORM_EPSILON, ResidualSwitchUnit


class FastSwitch:
    """A residual switch unit with its weights ready for use."""

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        """dtype: of the matrix products."""
        self.dtype = dtype
        self.z = by_input(unit.z.weight.detach().to(dtype))
        self.w = by_input((unit.w.weight.detach().float() * unit.update_scale).to(dtype))
        self._z_by_input, self._w_by_input = self.z.t(), self.w.t()
        self.b = (unit.w.bias.detach().float() * unit.update_scale).to(dtype)
        self.residual = torch.sigmoid(unit.residual_speed * unit.s.detach().float())  # (2m,)
        self._computed: slice | None = None  # of the 2m outputs; None for all

    def __call__(self, x: Tensor, direction: Direction) -> Tensor:
        """x: (batch, n, m) float32, contiguous -> the same shape, permuted."""
        batch, n, maps = x.shape
        if direction == "none":
            return self.units(x.view(-1, 2 * maps)).view(batch, -1, maps)
        out = torch.empty_like(x)
        # Shows element 2p + q of x where the permutation puts it, to q * n/2 + p or, from place
        # 2s + q of half h, to 2 * (2s + q) + h.
        if direction == "deinterleave":
            place = out.view(batch, 1, 2, n // 2, maps).transpose(2, 3)
        else:
            place = out.view(batch, n // 4, 2, 2, maps).permute(0, 3, 1, 2, 4)
        pairs = x.view(place.shape)
        update = self._update(pairs.flatten(1, -3).flatten(2)).view(pairs.shape)
        torch.addcmul(update, pairs, self.residual.view(2, -1), out=place)
        return out

    def half(self, second: bool) -> FastSwitch:
        """Return a unit that computes only one output of each pair: (batch, n, m) -> (batch, n / 2,
        m), in the order of the pairs."""
        maps = len(self.residual) // 2
        part = slice(maps, 2 * maps) if second else slice(maps)
        half = copy(self)
        half._computed = part
        half.w, half.b, half.residual = self.w[part], self.b[part], self.residual[part]
        half._w_by_input = half.w.t()
        return half

    def units(self, pairs: Tensor) -> Tensor:
        """Map pairs, (pairs, 2m) float32, to the unit's outputs, (pairs, 2m)."""
        kept = pairs[:, self._computed] if self._computed else pairs
        if self.dtype is not torch.float32:
            return torch.addcmul(self._update(pairs), kept, self.residual)
        hidden = self._activated(torch.mm(pairs, self._z_by_input))
        # The product adds to the residual in place: neither it nor the bias is copied first.
        out = torch.addcmul(self.b, kept, self.residual)
        return out.addmm_(hidden, self._w_by_input)

    def _update(self, rows: Tensor) -> Tensor:
        """Map (..., pairs, 2m) to h * c."""
        hidden = self._activated(F.linear(rows.to(self.dtype), self.z))
        return F.linear(hidden.to(self.dtype), self.w, self.b)

    def _activated(self, hidden: Tensor) -> Tensor:
        # Called for each of hundreds of small products: functions, not modules.
        return F.gelu(torch.layer_norm(hidden, hidden.shape[-1:], eps=FEATURE_NORM_EPSILON))


def by_input(weight: Tensor) -> Tensor:
    """Return the matrix with contiguous columns if it is float32. Otherwise products of few rows
    would spend most of their time on transposing it."""
    return weight.t().contiguous().t() if weight.dtype is torch.float32 else weight


Plan = list[tuple[FastSwitch, Direction, Tensor | None]]
"""Switch layers, each with the permutation of its outputs or those to gather."""


class FastShuffleExchange:
    """Beneš blocks and the final switch layer, computed for the positions that are read."""

    def __init__(self, network: ResidualShuffleExchange, dtype: torch.dtype) -> None:
        """dtype: of the matrix products."""
        self._units: dict[tuple[int | None, bool], FastSwitch] = {}
        for number, block in enumerate(network.blocks):
            assert isinstance(block, BenesBlock)
            self._units[number, False] = FastSwitch(block.forward_switch, dtype)
            self._units[number, True] = FastSwitch(block.reverse_switch, dtype)
        assert isinstance(network.last, ResidualSwitchUnit)
        self._units[None, False] = FastSwitch(network.last, dtype)
        self.first_unit = self._units[0, False]
        """Unit of the first half of the first block."""
        self._blocks = len(network.blocks)
        # One plan for each range of positions. CUDA graphs read its indices, so none is deleted.
        self._plans = cache(self._make_plan)

    def __call__(self, x: Tensor, positions: range) -> Tensor:
        """Map (batch, n, m) to the output at `positions`, (batch, len(positions), m) float32."""
        return self._run(x.float().contiguous(), self._plans(x.shape[1], positions, x.device))

    def finish(self, x: Tensor, positions: range) -> Tensor:
        """Compute the layers after the first half of the first block. x: (batch, n, m) float32, the
        output of that half in the order of its shuffles (:func:`model.switch.interleave`). Return
        the output of the network."""
        length = x.shape[1]
        first_half = length.bit_length() - 2  # layers
        return self._run(x, self._plans(length, positions, x.device)[first_half:])

    def _run(self, x: Tensor, plan: Plan) -> Tensor:
        for unit, direction, gather in plan:
            x = unit(x, direction)
            if gather is not None:
                x = x.index_select(1, gather)
        return x

    def _make_plan(self, length: int, positions: range, device: torch.device) -> Plan:
        plan: Plan = []
        for layer in prune(length.bit_length() - 1, self._blocks, positions):
            unit = self._units[layer.block, layer.reverse]
            if layer.gather is None:
                plan.append((unit, layer.shuffle, None))
                continue
            gather = torch.tensor(layer.gather, device=device)
            outputs = {place % 2 for place in layer.gather}  # outputs of a pair that are needed
            if len(outputs) == 1:
                unit, gather = unit.half(outputs == {1}), gather // 2
            plan.append((unit, "none", gather))
        return plan
