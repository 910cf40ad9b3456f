"""The Residual Shuffle-Exchange network arranged for inference: fewer passes, the same answers.

Against ``model.rse``: matrix products in the type that the processor multiplies fastest, the
residual stream in float32; h folded into W; residual, scale and permutation in one pass that
writes every element where the next layer reads it; dead units left out (``model.fast.pruning``).
There are no gradients. Weights are copied: later changes of the network are not seen.

Thread-safety: may be called from several threads at a time.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from model.fast.pruning import Direction, Layer, prune
from model.rse import BenesBlock, ResidualShuffleExchange
from model.shuffle import interleave
from model.switch import ResidualSwitchUnit, SequenceNorm, activate

logger = logging.getLogger(__name__)

_READ_PATTERNS = 64  # sets of positions whose pruned layers are remembered
_PIECE_PAIRS = 1 << 12  # of a sequence, computed in one go


class FastSwitch:
    """A residual switch unit with its weights ready for use."""

    def __init__(self, unit: ResidualSwitchUnit, dtype: torch.dtype) -> None:
        """dtype: of the matrix products."""
        self.dtype = dtype
        self.activation = unit.activation
        self.norm = unit.norm
        self.sequence_norm = isinstance(unit.norm, SequenceNorm)
        scale = 1.0 if unit.residual_scale == "none" else unit.update_scale
        self.z = unit.z.weight.detach().to(dtype)
        self.w = (unit.w.weight.detach().float() * scale).to(dtype)
        self.b = (unit.w.bias.detach().float() * scale).to(dtype)
        match unit.residual_scale:  # what the input is multiplied with
            case "learned":
                residual = torch.sigmoid(unit.residual_speed * unit.s.detach().float())
            case "one":
                residual = torch.ones_like(self.b, dtype=torch.float32)
            case _:
                residual = torch.zeros_like(self.b, dtype=torch.float32)
        self.residual = residual.view(2, -1)  # (2, m)

    def __call__(self, x: Tensor, direction: Direction) -> Tensor:
        """x: (batch, n, m) float32, contiguous -> the same shape, permuted.

        Long sequences are computed piece by piece, so that beside input and output no memory
        grows with them (but for a norm over the sequence).
        """
        out = torch.empty_like(x)
        place = _places(out, direction)
        pairs = x.view(place.shape)
        if self.sequence_norm or pairs.shape[1] * pairs.shape[2] <= _PIECE_PAIRS:
            self._compute(pairs, place)
            return out
        for half, half_place in zip(pairs.unbind(1), place.unbind(1), strict=True):
            pieces = half.split(_PIECE_PAIRS, dim=1), half_place.split(_PIECE_PAIRS, dim=1)
            for piece, piece_place in zip(*pieces, strict=True):
                self._compute(piece, piece_place)
        return out

    def units(self, pairs: Tensor) -> Tensor:
        """(pairs, 2m) float32, contiguous -> what the unit makes of each, (pairs, 2m)."""
        out = torch.empty_like(pairs)
        self._compute(pairs.view(1, len(pairs), 2, -1), out.view(1, len(pairs), 2, -1))
        return out

    def _compute(self, pairs: Tensor, place: Tensor) -> None:
        """pairs, place: (batch, ..., 2, m); what the unit makes of each pair goes to its place."""
        rows = pairs.flatten(1, -3).flatten(2)  # (batch, pairs, 2m)
        hidden = self.norm(F.linear(rows.to(self.dtype), self.z))
        hidden = activate(self.activation, hidden).to(self.dtype)
        update = F.linear(hidden, self.w, self.b)
        torch.addcmul(update.view(pairs.shape), pairs, self.residual, out=place)


def fast_switch(unit: ResidualSwitchUnit, dtype: torch.dtype) -> FastSwitch:
    """The unit in one kernel on a GPU where Triton runs, else in a few."""
    if unit.z.weight.is_cuda and find_spec("triton") is not None:
        return fused_switch(unit, dtype) or FastSwitch(unit, dtype)
    return FastSwitch(unit, dtype)


def fused_switch(unit: ResidualSwitchUnit, dtype: torch.dtype) -> FastSwitch | None:
    """The unit in one kernel; None where it has none, or where the kernel does not run.

    Triton is there with every CUDA build of torch, but not always the C compiler that it needs,
    a folder to keep what it compiles, or a GPU that the kernel fits.
    """
    try:
        from model.fast.triton_switch import TritonSwitch, fits  # which builds upon this module

        if not fits(unit):
            return None
        switch = TritonSwitch(unit, dtype)
        switch(unit.z.weight.new_zeros(1, 2, unit.w.out_features // 2, dtype=torch.float32), "none")
    except Exception:
        _warn_once()
        return None
    return switch


@lru_cache
def _warn_once() -> None:
    """Of the exception being handled; the other units of a network meet the same."""
    logger.warning("Triton does not run here: the plain kernels are used", exc_info=True)


def _places(out: Tensor, direction: Direction) -> Tensor:
    """A view of (batch, n, m) that shows element 2p + q of the input where the permutation puts
    it; (batch, halves, pairs, 2, m) with the pairs p of the input's halves, or of all of it."""
    batch, n, maps = out.shape
    match direction:
        case "deinterleave":  # to q * n/2 + p
            return out.view(batch, 1, 2, n // 2, maps).transpose(2, 3)
        case "interleave":  # of half h and place 2s + q in it, to 2 * (2s + q) + h
            return out.view(batch, n // 4, 2, 2, maps).permute(0, 3, 1, 2, 4)
        case _:
            return out.view(batch, 1, n // 2, 2, maps)


class FastShuffleExchange:
    """Beneš blocks and the final switch layer, computed for the positions that are read."""

    def __init__(self, network: ResidualShuffleExchange, dtype: torch.dtype) -> None:
        """dtype: of the matrix products. Raises ValueError for gated units."""
        if network.gated:
            raise ValueError("gated units have no fast arrangement")
        self._units: dict[tuple[int | None, bool], FastSwitch] = {}
        for number, block in enumerate(network.blocks):
            assert isinstance(block, BenesBlock)
            self._units[number, False] = fast_switch(block.forward_switch, dtype)
            self._units[number, True] = fast_switch(block.reverse_switch, dtype)
            self._released = block.released
        assert isinstance(network.last, ResidualSwitchUnit)
        self._units[None, False] = fast_switch(network.last, dtype)
        self._blocks = len(network.blocks)
        # A norm over the sequence needs every unit of a layer.
        self._prunable = not self._units[None, False].sequence_norm
        self._plans = lru_cache(_READ_PATTERNS)(self._make_plan)

    def __call__(self, x: Tensor, positions: range) -> Tensor:
        """(batch, length, m) -> (batch, len(positions), m) float32, the network's output there."""
        length = x.shape[1]
        x = F.pad(x.float(), (0, 0, 0, (1 << _bits(length)) - length)).contiguous()
        return self._run(x, self._plans(_bits(length), positions, x.device))

    @property
    def first_unit(self) -> FastSwitch:
        """Of the first half of the first block."""
        return self._units[0, False]

    @property
    def streams(self) -> bool:
        """Whether :class:`model.fast.exchange.FirstHalf` computes the first half: neighbours are
        paired first, and a unit sees its own pair alone."""
        return self._released and self._prunable

    def finish(self, x: Tensor, positions: range) -> Tensor:
        """What follows the first half of the first block.

        x: (batch, n, m) float32, that half's output in the order of the sequence -> the same as
        for the whole network.
        """
        bits = _bits(x.shape[1])
        x = interleave(x)  # as b - 1 shuffles have left it
        return self._run(x, self._plans(bits, positions, x.device)[bits - 1 :])

    def _run(self, x: Tensor, plan: list[tuple[Layer, Tensor | None]]) -> Tensor:
        for layer, gather in plan:
            direction = layer.shuffle if gather is None else "none"
            x = self._units[layer.block, layer.reverse](x, direction)
            if gather is not None:
                x = x.index_select(1, gather)
        return x

    def indices(self, length: int, positions: range, device: torch.device) -> list[Tensor]:
        """What is read for these positions beside weights and sequence.

        It is forgotten once many other positions have been asked for: keep it where the work is
        recorded to be done again.
        """
        plan = self._plans(_bits(length), positions, device)
        return [gather for _, gather in plan if gather is not None]

    def _make_plan(
        self, bits: int, positions: range, device: torch.device
    ) -> list[tuple[Layer, Tensor | None]]:
        """The layers to compute, and what is read of each where that is not all."""
        read = tuple(positions) if self._prunable else tuple(range(2**bits))
        direction: Direction = "deinterleave" if self._released else "interleave"
        plan: list[tuple[Layer, Tensor | None]] = []
        for layer in prune(bits, self._blocks, direction, read):
            gather = None if layer.gather is None else torch.tensor(layer.gather, device=device)
            plan.append((layer, gather))
        if not self._prunable and len(positions) < 2**bits:
            plan[-1] = (plan[-1][0], torch.tensor(positions, device=device))
        return plan


def _bits(length: int) -> int:
    """Of an address in a sequence padded to a power of two."""
    return max(1, (length - 1).bit_length())
