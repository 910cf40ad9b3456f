"""Streaming Beneš network: computes only the activations that a moving window changes.

In the first half of a Beneš block, layer i pairs the positions whose addresses differ in bit i. The
octave is in the lowest bits of an address, the patch, in order of time, above it. Moving the window
by s patches moves every position by s patches. If s is a multiple of the patches that a layer's
pairs span, pairs stay pairs, and the layer's outputs remain valid unless a new position reaches
them. Each layer therefore reuses its outputs of the latest window that is such a multiple back. For
8 octaves, 32 patches and a window that moves by one patch (two columns), which also changes the
five columns left of the new ones (``#`` computed, ``.`` reused)::

                                      window        outputs by patch, oldest first
    bit 0, 1, 2  octaves of a patch   the last      ...........................#####
    bit 3        patches 1 apart      2 windows ago ..........................######
    bit 4        patches 2 apart      4 windows ago ........................########
    bit 5        patches 4 apart      8 windows ago ................################
    bit 6        patches 8 apart      none          ################################

The middle of the block depends on all positions and is computed in full. The second half is
computed only for the positions that are used (``model.fast.pruning``).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from model.config import MAX_CACHED_HOPS
from model.fast.shuffle_exchange import FastShuffleExchange
from model.front_end.filterbank import GRID
from model.front_end.patches import OctavePatches

LayerCache = dict[int, tuple[int, Tensor]]
"""Outputs of a layer, (positions, m), for the latest windows of a stream, and the hops at which
the windows end. The keys are the remainders of these hops: a window can reuse the outputs of a
window with the same remainder."""


class FirstHalf:
    """The first half of a network's first Beneš block for a stream of windows. The outputs of a
    layer are in the order of its pairs, from which the next layer gathers its own pairs."""

    def __init__(
        self,
        exchange: FastShuffleExchange,
        patches: OctavePatches,
        reach: int,
        embed: Callable[[Tensor], Tensor],
    ) -> None:
        """Args:
        reach: number of columns before the new ones that change with them.
        embed: maps columns, (windows, columns, pitches, channels) in complete patches, to
            positions, (windows, positions, m) float32.
        """
        self._unit = exchange.first_unit
        self._embed = embed
        self._octaves = patches.octaves
        self._frames = patches.frames
        self._positions = patches.positions
        self._reach = reach
        layers = patches.positions.bit_length() - 2  # positions are a power of two
        orders = [_pair_order(patches.positions, bit) for bit in range(-1, layers)]
        self._gathers = [
            [before.argsort()[order][first:] for first in range(0, len(order), self._octaves)]
            for before, order in pairwise(orders)
        ]  # indexes of the pairs among the layer's inputs, by layer and first patch
        self._spans = [
            max(1, (2 << bit if bit >= 0 else 1) // self._octaves) for bit in range(-1, layers - 1)
        ]  # number of patches that the pairs of the input and of each layer but the last span
        self._output_order = orders[-1].argsort()[
            torch.arange(patches.positions).view(2, -1).t().flatten()
        ]

    def open(self) -> list[LayerCache]:
        """Return the state of a new stream."""
        return [{} for _ in self._spans]

    def can_batch(self, new_hops: int) -> bool:
        """Return True if :meth:`advance` accepts several windows that move by ``new_hops`` hops.
        Each then reuses only outputs that the window before computed."""
        return all(
            new_hops % (span * self._frames) == 0
            and self._reusable(span, new_hops)
            and self._first(span, new_hops) <= new_hops // self._frames
            for span in self._spans
        )

    def advance(self, kept: list[LayerCache], hops: Sequence[int], grid: Tensor) -> Tensor:
        """Return the half block's output for the windows that end at these hops, (windows,
        positions, m) float32, in the order that the block's shuffles leave. grid: (windows,
        GRID, pitches, channels), their columns."""
        x = grid
        for layer, (span, windows) in enumerate(zip(self._spans, kept, strict=True)):
            remainder = hops[0] % (span * self._frames)
            then, before = windows.get(remainder, (None, None))
            first = moved = 0
            if then is not None and self._reusable(span, hops[0] - then):
                first = self._first(span, hops[0] - then)
                moved = (hops[0] - then) // self._frames * self._octaves
            if layer:
                new = self._layer(x, layer - 1, first)
            else:
                new = self._embed(grid[:, first * self._frames :])
            x = merge_windows(before, new, self._positions, moved)
            windows[remainder] = hops[-1], x[-1]
        out = self._layer(x, len(self._gathers) - 1, 0)
        return out.index_select(1, self._output_order)

    def _reusable(self, span: int, age: int) -> bool:
        """Return True if some of a layer's outputs are still valid after ``age`` hops."""
        return age <= min(GRID - self._reach - span * self._frames, MAX_CACHED_HOPS)

    def _first(self, span: int, age: int) -> int:
        """Return the first patch of a layer's outputs that has changed in ``age`` hops."""
        return (GRID - self._reach - age) // self._frames // span * span

    def _layer(self, x: Tensor, layer: int, first: int) -> Tensor:
        """Return a layer's outputs from patch ``first`` on, (windows, positions, m). x: all its
        inputs."""
        pairs = x.index_select(1, self._gathers[layer][first])
        return self._unit.units(pairs.view(-1, 2 * x.shape[2])).view(pairs.shape)


def merge_windows(before: Tensor | None, new: Tensor, rows: int, moved: int) -> Tensor:
    """Return complete windows (windows, rows, ...) in order of time, each moved by ``moved`` rows.

    Args:
        before: (rows, ...) the window before the first.
        new: (windows, newest rows, ...) the rows that change. The other rows come from the window
            before.
    """
    stay = rows - new.shape[1]
    if not stay:
        return new
    assert before is not None
    out = new.new_empty(len(new), rows, *new.shape[2:])
    out[:, stay:] = new
    out[0, :stay] = before[moved : moved + stay]
    if len(new) > 1:
        out[1:, :stay] = out[:-1, moved : moved + stay]
    return out


def _pair_order(positions: int, bit: int) -> Tensor:
    """Return the positions in the order of pairs whose addresses differ in this bit; -1 means
    the order of time."""
    order = torch.arange(positions)
    return order if bit < 0 else order.view(-1, 2, 1 << bit).transpose(1, 2).flatten()
