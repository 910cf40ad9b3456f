"""The streaming Beneš network: computes only what a moving window changes.

In the first half of a Beneš block, layer i pairs the positions whose addresses differ in bit i. The
octave is in the lowest bits of an address, the patch, in order of time, above it. Moving the window
by s patches moves every position by s patches. If s is a multiple of the patches that a layer's
pairs span, pairs stay pairs and the layer's outputs remain valid, except those that a new position
reaches. So each layer reuses its outputs from the latest window that is such a multiple back. For
8 octaves, 32 patches and a window that moves by one patch (two columns), which also changes the
five columns left of the new ones (``#`` computed, ``.`` kept)::

                                      window        outputs by patch, oldest first
    bit 0, 1, 2  octaves of a patch   the last      ...........................#####
    bit 3        patches 1 apart      2 windows ago ..........................######
    bit 4        patches 2 apart      4 windows ago ........................########
    bit 5        patches 4 apart      8 windows ago ................################
    bit 6        patches 8 apart      none          ################################

The middle of the block depends on all positions and is computed in full; the second half is
computed for the positions that are read (``model.fast.pruning``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from model.config import KEPT_HOPS
from model.fast.shuffle_exchange import FastShuffleExchange
from model.fast.sliding import Sliding
from model.filterbank import GRID
from model.patches import OctavePatches

Compute = Callable[[int, Tensor], None]
"""Writes the positions from a patch on, (positions, m) float32, given the patch."""


class Kept:
    """One layer's outputs for the latest windows of a stream that later windows can reuse."""

    def __init__(self, positions: int, maps: int, multiple: int, longest: int) -> None:
        """multiple: hops after which the layer's pairs recur; longest: hops after which no output
        of a window is reusable."""
        self._shape = positions, maps
        self._multiple = multiple
        self._longest = min(longest, KEPT_HOPS)
        # The hops at which windows end, by their remainder: one window reuses another's outputs
        # if it has the same.
        self._windows: dict[int, tuple[int, Sliding]] = {}

    def take(self, hop: int) -> tuple[int | None, Sliding]:
        """The latest reusable outputs for the window that ends at this hop, which is to overwrite
        them, and their age in hops; None if there are none."""
        kept = {r: one for r, one in self._windows.items() if hop - one[0] <= self._longest}
        then, outputs = kept.get(hop % self._multiple) or (None, Sliding(*self._shape))
        kept[hop % self._multiple] = hop, outputs
        self._windows = kept
        return None if then is None else hop - then, outputs


class FirstHalf:
    """The first half of a network's first Beneš block over a stream of windows."""

    def __init__(self, exchange: FastShuffleExchange, patches: OctavePatches, reach: int) -> None:
        """reach: columns before the new ones that change with them."""
        self._unit = exchange.first_unit
        self._maps = self._unit.residual.shape[1]
        self._octaves = patches.octaves
        self._frames = patches.frames
        self._positions = patches.positions
        self._reach = reach
        self._last = patches.positions.bit_length() - 3  # bit of the last layer

    def open(self) -> list[Kept]:
        """The state of a new stream: the inputs of every layer."""
        spans = [1, *(self._span(bit) for bit in range(self._last))]
        return [
            Kept(
                self._positions,
                self._maps,
                span * self._frames,
                GRID - self._reach - span * self._frames,
            )
            for span in spans
        ]

    def advance(self, kept: list[Kept], hop: int, embed: Compute, out: Tensor) -> None:
        """Writes the half block's output for the window that ends at this hop.

        out: (positions / 2, 2, m) float32; element (i, h) is position i of half h, and so the pairs
        of the next layer.
        """
        x = self._renewed(kept[0], hop, 1, embed)
        for bit in range(self._last):
            x = self._renewed(kept[bit + 1], hop, self._span(bit), partial(self._layer, x, bit))
        halves = x.view(2, 2, -1, self._maps).transpose(1, 2)  # (half, pairs, 2, m)
        self._unit.compute(halves, out.view(2, -1, 2, self._maps).permute(2, 1, 0, 3))

    def _span(self, bit: int) -> int:
        """Patches that a layer's pairs span."""
        return max(1, (2 << bit) // self._octaves)

    def _layer(self, x: Tensor, bit: int, first: int, out: Tensor) -> None:
        """Writes a layer's outputs from patch `first` on; x: (positions, m), its inputs."""
        shape = -1, 2, 1 << bit, self._maps
        pairs = x[first * self._octaves :].view(shape).transpose(1, 2)
        self._unit.compute(pairs, out.view(shape).transpose(1, 2))

    def _renewed(self, kept: Kept, hop: int, span: int, compute: Compute) -> Tensor:
        """A layer's outputs: kept ones, then computed ones from the first changed patch on."""
        first, moved = 0, 0
        age, outputs = kept.take(hop)
        if age is not None:
            first = (GRID - self._reach - age) // self._frames // span * span
            moved = age // self._frames * self._octaves
        out = outputs.move(moved, first * self._octaves)
        compute(first, out[first * self._octaves :])
        return out
