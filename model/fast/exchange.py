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

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from model.config import KEPT_HOPS
from model.fast.shuffle_exchange import FastShuffleExchange
from model.fast.sliding import Sliding
from model.front_end.filterbank import GRID
from model.front_end.patches import OctavePatches

Compute = Callable[[int, Tensor], None]
"""Writes the positions from a patch on, (positions, m) float32, given the patch."""


class Kept:
    """One layer's outputs for the latest windows of a stream that later windows can reuse."""

    def __init__(self, shape: tuple[int, int], multiple: int, longest: int) -> None:
        """shape: (positions, m); multiple: hops after which the layer's pairs recur; longest: hops
        after which no output of a window is reusable."""
        self._shape = shape
        self._multiple = multiple
        self._longest = min(longest, KEPT_HOPS)
        # The hops at which windows end, by their remainder: one window reuses another's outputs
        # if it has the same.
        self._windows: dict[int, tuple[int, Sliding]] = {}

    def take(self, hop: int) -> tuple[int | None, Sliding]:
        """The latest reusable outputs for the window that ends at this hop, which is to overwrite
        them, and their age in hops; None if there are none."""
        then, outputs = self._windows.get(hop % self._multiple) or (None, Sliding(*self._shape))
        self._windows[hop % self._multiple] = hop, outputs
        return None if then is None or hop - then > self._longest else hop - then, outputs

    def follows(self, hops: int) -> bool:
        """Whether a window always reuses the outputs of the one that ended so many hops ago."""
        return hops % self._multiple == 0 and hops <= self._longest


class FirstHalf:
    """The first half of a network's first Beneš block over a stream of windows.

    A layer's outputs stay in the order of its pairs: position d of a block and its partner, then
    the next two. The next layer gathers its pairs from there.
    """

    def __init__(self, exchange: FastShuffleExchange, patches: OctavePatches, reach: int) -> None:
        """reach: columns before the new ones that change with them."""
        self._unit = exchange.first_unit
        self._octaves = patches.octaves
        self._frames = patches.frames
        self._shape = patches.positions, len(self._unit.residual) // 2
        self._reach = reach
        layers = patches.positions.bit_length() - 2  # positions are a power of two
        orders = [_pair_order(patches.positions, bit) for bit in range(-1, layers)]
        self._gathers = [
            [_places(order, before)[first:] for first in range(0, len(order), self._octaves)]
            for before, order in pairwise(orders)
        ]  # by layer and first patch: which of the layer's inputs the pairs are
        self._spans = [
            max(1, (2 << bit if bit >= 0 else 1) // self._octaves)
            for bit in range(-1, len(self._gathers))
        ]  # patches that a layer's pairs span, after those of the input
        self._places_together: dict[tuple[int, int, int], Tensor] = {}
        self._leave = _places(torch.arange(patches.positions).view(2, -1).t().flatten(), orders[-1])

    def open(self) -> list[Kept]:
        """The state of a new stream: the inputs of every layer."""
        hops = [span * self._frames for span in self._spans[:-1]]
        return [Kept(self._shape, span, GRID - self._reach - span) for span in hops]

    def advance(self, kept: list[Kept], hop: int, embed: Compute, out: Tensor) -> None:
        """Writes the half block's output for the window that ends at this hop.

        out: (positions, m) float32, in the order that the block's shuffles leave.
        """
        x = self._renewed(kept[0], hop, -1, embed)
        for bit, layer in enumerate(kept[1:]):
            x = self._renewed(layer, hop, bit, partial(self._layer, x, bit))
        x = self._unit.units(self._pairs(x, len(kept) - 1, 0))
        torch.index_select(x.view(self._shape), 0, self._leave, out=out)

    def together(self, kept: list[Kept], new_hops: int) -> bool:
        """Whether :meth:`advance_together` applies to windows that move by so many hops: what one
        reuses is among what the one before computed."""
        moved = new_hops // self._frames
        return all(
            layer.follows(new_hops) and self._first(bit, new_hops) <= moved
            for bit, layer in enumerate(kept, start=-1)
        )

    def advance_together(
        self, kept: list[Kept], hops: Sequence[int], embed: Compute, out: Tensor
    ) -> None:
        """:meth:`advance` for the windows that end at these hops, layer by layer.

        embed writes (windows, positions, m); out: (windows, positions, m).
        """
        step, x = hops[1] - hops[0], out
        for bit, layer in enumerate(kept, start=-1):
            first = self._first(bit, step)
            stay, moved = first * self._octaves, step // self._frames * self._octaves
            _, outputs = layer.take(hops[0])
            new = torch.empty(len(hops) + 1, self._shape[0] - stay, self._shape[1])
            new[0] = outputs.newest(new.shape[1])
            if bit < 0:
                embed(first, new[1:])
            else:
                pairs = self._pairs_together(x, bit, first, len(hops), step)
                self._unit.units(pairs, out=new[1:].view(pairs.shape))
            layer.take(hops[-1])
            outputs.adopt(new, moved)
            x = new
        x = self._unit.units(self._pairs_together(x, len(kept) - 1, 0, len(hops), step))
        torch.index_select(x.view(len(hops), *self._shape), 1, self._leave, out=out)

    def _pairs_together(self, x: Tensor, bit: int, first: int, windows: int, step: int) -> Tensor:
        """(pairs, 2m): each window's pairs of a layer from patch `first` on.

        x: (1 + windows, positions, m), the layer's inputs that each window computed, after those
        of the window before them.
        """
        key = (bit, windows, step)
        places = self._places_together.get(key)
        if places is None:
            stay = self._first(bit - 1, step) * self._octaves
            moved = step // self._frames * self._octaves
            wanted = self._gathers[bit][first]
            new = self._shape[0] - stay
            old = wanted < stay  # computed with the window before
            places = torch.where(old, wanted + moved - stay, wanted - stay + new)
            places = (places + new * torch.arange(windows)[:, None]).flatten()
            self._places_together[key] = places
        return x.view(-1, self._shape[1]).index_select(0, places).view(-1, 2 * self._shape[1])

    def _first(self, bit: int, age: int) -> int:
        """The first patch of a layer's outputs that is not as it was so many hops ago."""
        span = self._spans[bit + 1]
        return (GRID - self._reach - age) // self._frames // span * span

    def _layer(self, x: Tensor, bit: int, first: int, out: Tensor) -> None:
        """Writes a layer's outputs from patch `first` on; x: (positions, m), its inputs."""
        pairs = self._pairs(x, bit, first)
        self._unit.units(pairs, out=out.view(pairs.shape))

    def _pairs(self, x: Tensor, bit: int, first: int) -> Tensor:
        """(pairs, 2m): those of a layer from patch `first` on."""
        return x.index_select(0, self._gathers[bit][first]).view(-1, 2 * self._shape[1])

    def _renewed(self, kept: Kept, hop: int, bit: int, compute: Compute) -> Tensor:
        """A layer's outputs: kept ones, then computed ones from the first changed patch on."""
        first, moved = 0, 0
        age, outputs = kept.take(hop)
        if age is not None:
            first = self._first(bit, age)
            moved = age // self._frames * self._octaves
        out = outputs.move(moved, first * self._octaves)
        compute(first, out[first * self._octaves :])
        return out


def _pair_order(positions: int, bit: int) -> Tensor:
    """The positions in the order of pairs whose addresses differ in this bit; -1: of time."""
    order = torch.arange(positions)
    return order if bit < 0 else order.view(-1, 2, 1 << bit).transpose(1, 2).flatten()


def _places(wanted: Tensor, order: Tensor) -> Tensor:
    return order.argsort()[wanted]  # in an order of all positions
