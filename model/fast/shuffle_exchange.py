"""The Residual Shuffle-Exchange network arranged for inference.

Unlike ``model.rse``, it uses fast switch units and skips those that nothing reads
(``model.fast.pruning``). It takes sequences of a power of two, the released shuffle and norms
within a unit.

Thread-safety: may be called from several threads at a time.
"""

import logging
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from model.fast.pruning import prune
from model.fast.switch import FastSwitch
from model.rse import BenesBlock, ResidualShuffleExchange
from model.shuffle import Direction
from model.switch import ResidualSwitchUnit

logger = logging.getLogger(__name__)

Plan = list[tuple[FastSwitch, Direction, Tensor | None]]
"""Switch layers, each with the permutation of its outputs or those to gather."""


class FastShuffleExchange:
    """Beneš blocks and the final switch layer, computed for the positions that are read."""

    def __init__(self, network: ResidualShuffleExchange, dtype: torch.dtype) -> None:
        """dtype: of the matrix products."""
        self._units: dict[tuple[int | None, bool], FastSwitch] = {}
        for number, block in enumerate(network.blocks):
            assert isinstance(block, BenesBlock)
            self._units[number, False] = fast_switch(block.forward_switch, dtype)
            self._units[number, True] = fast_switch(block.reverse_switch, dtype)
        assert isinstance(network.last, ResidualSwitchUnit)
        self._units[None, False] = fast_switch(network.last, dtype)
        self.first_unit = self._units[0, False]
        """Of the first half of the first block."""
        self._blocks = len(network.blocks)
        # One for each run of patches that is read. A CUDA graph reads the indices again and again,
        # so none is forgotten.
        self._plans = cache(self._make_plan)

    def __call__(self, x: Tensor, positions: range) -> Tensor:
        """(batch, n, m) -> (batch, len(positions), m) float32, the output at `positions`."""
        return self._run(x.float().contiguous(), self._plans(x.shape[1], positions, x.device))

    def finish(self, x: Tensor, positions: range) -> Tensor:
        """Everything after the first half of the first block. x: (batch, n, m) float32, that half's
        output in the order that its shuffles leave (:func:`model.shuffle.interleave`) -> the same
        as for the whole network."""
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
            outputs = {place % 2 for place in layer.gather}  # of each pair
            if len(outputs) == 1 and unit.halves:
                unit, gather = unit.half(outputs == {1}), gather // 2
            plan.append((unit, "none", gather))
        return plan


def fast_switch(unit: ResidualSwitchUnit, dtype: torch.dtype) -> FastSwitch:
    """The unit as one Triton kernel on GPUs if Triton runs, else as a few plain kernels."""
    if unit.z.weight.is_cuda and find_spec("triton") is not None:
        return fused_switch(unit, dtype) or FastSwitch(unit, dtype)
    return FastSwitch(unit, dtype)


def fused_switch(unit: ResidualSwitchUnit, dtype: torch.dtype) -> FastSwitch | None:
    """The unit as one kernel; None if the kernel does not support it or does not run. Every CUDA
    build of torch has Triton, but the C compiler, the cache folder or a suitable GPU may be
    missing."""
    try:
        from model.fast.triton_switch import TritonSwitch, fits  # needs Triton

        if not fits(unit):
            return None
        switch = TritonSwitch(unit, dtype)
        switch(unit.z.weight.new_zeros(1, 2, unit.w.out_features // 2, dtype=torch.float32), "none")
    except Exception:
        _warn_once()
        return None
    return switch


@cache
def _warn_once() -> None:
    """Logs the exception being handled; a network's other units raise the same one."""
    logger.warning("Triton does not run here; using the plain kernels", exc_info=True)
