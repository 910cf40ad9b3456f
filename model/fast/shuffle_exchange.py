"""Fast inference with a Residual Shuffle-Exchange network.

* Switch units whose outputs are not used are skipped (``model.fast.pruning``).
* Matrix products can use bfloat16. The residual stream stays float32.
* The scale h is folded into W. A single pass over memory adds the scaled residual and moves each
  element to its position in the next layer.

Most weights are copied, so do not change the network afterwards. The length of a sequence must be a
power of two. Only the paper's units and the released shuffle are supported. Thread-safe.
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
    """A residual switch unit for inference."""

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        """dtype: type of the matrix products."""
        self.dtype = dtype
        self.z = by_input(unit.z.weight.detach().to(dtype))
        self.w = by_input((unit.w.weight.detach().float() * unit.update_scale).to(dtype))
        self._z_by_input, self._w_by_input = self.z.t(), self.w.t()
        self.b = (unit.w.bias.detach().float() * unit.update_scale).to(dtype)
        self.residual = torch.sigmoid(unit.residual_speed * unit.s.detach().float())  # (2m,)
        self._computed: slice | None = None  # computed part of the 2m outputs; None means all

    def __call__(self, x: Tensor, direction: Direction) -> Tensor:
        """Map contiguous float32 (batch, n, m) to the permuted outputs, of the same shape."""
        batch, n, maps = x.shape
        if direction == "none":
            return self.units(x.view(-1, 2 * maps)).view(batch, -1, maps)
        out = torch.empty_like(x)
        # View of the output in the order of the input. Deinterleaving moves element 2p + q to
        # q * n/2 + p. Interleaving moves element 2s + q of half h to 2 * (2s + q) + h.
        if direction == "deinterleave":
            target = out.view(batch, 1, 2, n // 2, maps).transpose(2, 3)
        else:
            target = out.view(batch, n // 4, 2, 2, maps).permute(0, 3, 1, 2, 4)
        pairs = x.view(target.shape)
        update = self._update(pairs.flatten(1, -3).flatten(2)).view(pairs.shape)
        torch.addcmul(update, pairs, self.residual.view(2, -1), out=target)
        return out

    def half(self, second: bool) -> FastSwitch:
        """Return a unit that computes only one output of each pair. It maps (batch, n, m) to
        (batch, n / 2, m), in the order of the pairs."""
        maps = len(self.residual) // 2
        part = slice(maps, 2 * maps) if second else slice(maps)
        half = copy(self)
        half._computed = part
        half.w, half.b, half.residual = self.w[part], self.b[part], self.residual[part]
        half._w_by_input = half.w.t()
        return half

    def units(self, pairs: Tensor) -> Tensor:
        """Map pairs, (pairs, 2m) float32, to the unit's outputs, (pairs, 2m), or (pairs, m) for a
        half unit."""
        inputs = pairs[:, self._computed] if self._computed else pairs
        if self.dtype is not torch.float32:
            return torch.addcmul(self._update(pairs), inputs, self.residual)
        hidden = self._activated(torch.mm(pairs, self._z_by_input))
        # The product is added in place, so neither residual nor bias needs a copy.
        out = torch.addcmul(self.b, inputs, self.residual)
        return out.addmm_(hidden, self._w_by_input)

    def _update(self, rows: Tensor) -> Tensor:
        """Map (..., pairs, 2m) to the scaled update, h * c."""
        hidden = self._activated(F.linear(rows.to(self.dtype), self.z))
        return F.linear(hidden.to(self.dtype), self.w, self.b)

    def _activated(self, hidden: Tensor) -> Tensor:
        # Functions have less overhead than modules, and there are hundreds of small products.
        return F.gelu(torch.layer_norm(hidden, hidden.shape[-1:], eps=FEATURE_NORM_EPSILON))


def by_input(weight: Tensor) -> Tensor:
    """Return a float32 matrix in column-major order, and other matrices unchanged. Products of a
    few rows would otherwise spend most of their time on transposing the matrix."""
    return weight.t().contiguous().t() if weight.dtype is torch.float32 else weight


Plan = list[tuple[FastSwitch, Direction, Tensor | None]]
"""Switch layers, each with the permutation of its outputs and the indexes of outputs to gather."""


class FastShuffleExchange:
    """Beneš blocks and the final switch layer, computed only for the requested positions."""

    def __init__(self, network: ResidualShuffleExchange, dtype: torch.dtype) -> None:
        """dtype: type of the matrix products."""
        self._units: dict[tuple[int | None, bool], FastSwitch] = {}
        for number, block in enumerate(network.blocks):
            assert isinstance(block, BenesBlock)
            self._units[number, False] = FastSwitch(block.forward_switch, dtype)
            self._units[number, True] = FastSwitch(block.reverse_switch, dtype)
        assert isinstance(network.last, ResidualSwitchUnit)
        self._units[None, False] = FastSwitch(network.last, dtype)
        self.first_unit = self._units[0, False]  # unit of the first half of the first block
        self._blocks = len(network.blocks)
        # One plan for each length, range and device. CUDA graphs read the indexes of a plan, so
        # plans are never deleted.
        self._plans = cache(self._make_plan)

    def __call__(self, x: Tensor, positions: range) -> Tensor:
        """Map (batch, n, m) to the output at ``positions``, (batch, len(positions), m) float32."""
        return self._run(x.float().contiguous(), self._plans(x.shape[1], positions, x.device))

    def finish(self, x: Tensor, positions: range) -> Tensor:
        """Map the output of the first block's first half to the network's output at ``positions``.
        x: (batch, n, m) float32, in the order after the shuffles of this half."""
        length = x.shape[1]
        layers_in_half = length.bit_length() - 2
        return self._run(x, self._plans(length, positions, x.device)[layers_in_half:])

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
            sides = {index % 2 for index in layer.gather}  # needed outputs of a pair
            if len(sides) == 1:
                unit, gather = unit.half(sides == {1}), gather // 2
            plan.append((unit, "none", gather))
        return plan
