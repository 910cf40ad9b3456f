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

import math
from collections import deque
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from model.config import KEPT_HOPS
from model.fast.shuffle_exchange import FastShuffleExchange
from model.filterbank import GRID
from model.patches import OctavePatches

Compute = Callable[[int], Tensor]
"""From a patch number to the positions from that patch on, (positions, m) float32."""


class Kept:
    """One layer's outputs for the latest windows of a stream that later windows can reuse."""

    def __init__(self, multiple: int, longest: int) -> None:
        """multiple: hops after which the layer's pairs recur; longest: hops after which no output
        of a window is reusable."""
        self._multiple = multiple
        self._longest = min(longest, KEPT_HOPS)
        self._windows: deque[tuple[int, Tensor]] = deque()  # and the hops at which they end

    def back(self, hop: int) -> tuple[int, Tensor] | None:
        """The latest reusable window: its age in hops, and its outputs."""
        for then, outputs in reversed(self._windows):
            if not (hop - then) % self._multiple and hop - then <= self._longest:
                return hop - then, outputs
        return None

    def add(self, hop: int, outputs: Tensor) -> None:
        """The outputs of the window that ends at this hop."""
        if self._windows:
            step = hop - self._windows[-1][0]
            needed = math.lcm(step, self._multiple)  # hops back, if windows keep this pace
            if needed > self._longest:
                self._windows.clear()
            while self._windows and hop - self._windows[0][0] >= needed:
                self._windows.popleft()
        self._windows.append((hop, outputs))


class FirstHalf:
    """The first half of a network's first Beneš block over a stream of windows."""

    def __init__(self, exchange: FastShuffleExchange, patches: OctavePatches, reach: int) -> None:
        """reach: columns before the new ones that change with them."""
        self._unit = exchange.first_unit
        self._octaves = patches.octaves
        self._frames = patches.frames
        self._reach = reach
        self._layers = patches.positions.bit_length() - 2

    def open(self) -> list[Kept]:
        """The state of a new stream: every layer's inputs, and the outputs of the last layer."""
        spans = [1, *(self._span(bit) for bit in range(self._layers))]
        return [
            Kept(span * self._frames, GRID - self._reach - span * self._frames) for span in spans
        ]

    def advance(self, kept: list[Kept], hop: int, embed: Compute) -> Tensor:
        """The half block's output for the window that ends at this hop, (positions, m) float32."""
        x = self._renewed(kept[0], hop, 1, embed)
        for bit in range(self._layers):
            x = self._renewed(kept[bit + 1], hop, self._span(bit), partial(self._layer, x, bit))
        return x

    def _span(self, bit: int) -> int:
        """Patches that a layer's pairs span."""
        return max(1, (2 << bit) // self._octaves)

    def _layer(self, x: Tensor, bit: int, first: int) -> Tensor:
        """A layer's outputs from patch `first` on; x: (positions, m), its inputs."""
        distance, maps = 1 << bit, x.shape[1]
        pairs = x[first * self._octaves :].view(-1, 2, distance, maps).transpose(1, 2)
        out = self._unit.units(pairs.reshape(-1, 2 * maps))
        return out.view(-1, distance, 2, maps).transpose(1, 2).reshape(-1, maps)

    def _renewed(self, kept: Kept, hop: int, span: int, compute: Compute) -> Tensor:
        """A layer's outputs: kept ones, then computed ones from the first changed patch on."""
        before = kept.back(hop)
        if before is None:
            out = compute(0)
        else:
            hops, outputs = before
            first = (GRID - self._reach - hops) // self._frames // span * span
            moved = hops // self._frames * self._octaves
            stay = outputs[moved : moved + first * self._octaves]
            out = torch.cat([stay, compute(first)])
        kept.add(hop, out)
        return out
