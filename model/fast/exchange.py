"""Streaming Beneš network: computes only the activations that a moving window changes.

Layer i of the first half of a Beneš block pairs positions whose addresses differ in bit i. The
lowest bits of an address are the octave. The higher bits are the patch, a pair of adjacent columns.

If the window moves by s patches, so does every position. Pairs of patches that are d apart lie in
aligned groups of p = 2 d patches, the *span* of the layer. If s is a multiple of p, two positions
that were a pair are still a pair, and the layer's output for them stays the same unless it depends
on a changed column. Each layer therefore reuses outputs of the latest window that is a multiple of
p patches older. Example: 8 octaves and 32 patches. The window moves by one patch, two columns. The
seven columns before them change too: two whose kernels now lie inside the window, and five because
of the convolutions (``#`` computed, ``.`` reused)::

                                      window        outputs by patch, oldest first
    bit 0, 1, 2  octaves of a patch   previous      ...........................#####
    bit 3        patches 1 apart      2 windows ago ..........................######
    bit 4        patches 2 apart      4 windows ago ........................########
    bit 5        patches 4 apart      8 windows ago ................################
    bit 6        patches 8 apart      none          ################################

The last of these layers is computed in full, because its pairs span half of the window. Later
layers are computed only for the positions that are used (``model.fast.pruning``).
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
"""Outputs of a layer for the latest windows of a stream. Each value is the hop at which a window
ends, with the outputs, (positions, m). The key is this hop modulo the span of the layer's pairs in
hops. A window can reuse the outputs of an earlier window with the same key."""


class FirstHalf:
    """The first half of a network's first Beneš block, for streams. Each layer stores its outputs
    in the order of its pairs. The next layer gathers its own pairs from these outputs."""

    def __init__(
        self,
        exchange: FastShuffleExchange,
        patches: OctavePatches,
        reach: int,
        embed: Callable[[Tensor], Tensor],
    ) -> None:
        """Args:
        reach: number of older columns that change when new columns arrive.
        embed: function that maps the columns of complete patches, (windows, columns, pitches,
            channels), to positions, (windows, positions, m) float32.
        """
        self._unit = exchange.first_unit
        self._embed = embed
        self._octaves = patches.octaves
        self._frames = patches.frames
        self._positions = patches.positions
        self._reach = reach
        layers = patches.positions.bit_length() - 2  # the number of positions is a power of two
        # Order of the positions in the outputs of the embedding, then of each layer. ``argsort`` of
        # an order returns the index of each position.
        orders = [_pair_order(patches.positions, bit) for bit in range(-1, layers)]
        # By layer and first patch: indexes of the pairs among the layer's inputs.
        self._gathers = [
            [before.argsort()[order][first:] for first in range(0, len(order), self._octaves)]
            for before, order in pairwise(orders)
        ]
        # Number of patches that pairs span: 1 for the input, then for each layer except the last.
        self._spans = [1, *(max(1, (2 << bit) // self._octaves) for bit in range(layers - 1))]
        # Together, the shuffles of a half block move the highest bit of an address to the lowest.
        shuffled = torch.arange(patches.positions).view(2, -1).t().flatten()
        self._output_order = orders[-1].argsort()[shuffled]

    def open(self) -> list[LayerCache]:
        """Return the state of a new stream."""
        return [{} for _ in self._spans]

    def can_batch(self, new_hops: int) -> bool:
        """True if :meth:`advance` accepts several windows that are ``new_hops`` hops apart. Every
        layer must then be able to reuse outputs of the previous window (:func:`merge_windows`)."""
        return all(
            new_hops % (span * self._frames) == 0
            and self._reusable(span, new_hops)
            and self._first(span, new_hops) <= new_hops // self._frames
            for span in self._spans
        )

    def advance(self, caches: list[LayerCache], hops: Sequence[int], grid: Tensor) -> Tensor:
        """Return the half block's output, (windows, positions, m) float32, in the order that the
        block's shuffles produce.

        Args:
            caches: state of the stream, which is updated.
            hops: hop at which each window ends, counted from the start of the stream.
            grid: columns of the windows, (windows, GRID, pitches, channels).
        """
        x = grid
        for layer, (span, cache) in enumerate(zip(self._spans, caches, strict=True)):
            remainder = hops[0] % (span * self._frames)
            cached_hop, before = cache.get(remainder, (None, None))
            first = moved = 0  # first changed patch; number of positions by which the window moved
            if cached_hop is not None and self._reusable(span, age := hops[0] - cached_hop):
                first, moved = self._first(span, age), age // self._frames * self._octaves
            if layer:
                new = self._layer(x, layer - 1, first)
            else:
                new = self._embed(grid[:, first * self._frames :])
            x = merge_windows(before, new, self._positions, moved)
            cache[remainder] = hops[-1], x[-1]
        out = self._layer(x, len(self._gathers) - 1, 0)
        return out.index_select(1, self._output_order)

    def _reusable(self, span: int, age: int) -> bool:
        """True if some outputs of a layer are still valid after ``age`` hops."""
        return age <= min(GRID - self._reach - span * self._frames, MAX_CACHED_HOPS)

    def _first(self, span: int, age: int) -> int:
        """Return the first patch whose outputs have changed after ``age`` hops."""
        return (GRID - self._reach - age) // self._frames // span * span

    def _layer(self, x: Tensor, layer: int, first: int) -> Tensor:
        """Return a layer's outputs from patch ``first`` on, (windows, positions, m). x: all inputs
        of the layer."""
        pairs = x.index_select(1, self._gathers[layer][first])
        return self._unit.units(pairs.view(-1, 2 * x.shape[2])).view(pairs.shape)


def merge_windows(before: Tensor | None, new: Tensor, rows: int, moved: int) -> Tensor:
    """Return complete windows, (windows, rows, ...), oldest first. Each window starts ``moved``
    rows after the previous one.

    Args:
        before: the window before the first, (rows, ...). None if ``new`` has all rows.
        new: the last rows of each window, (windows, new rows, ...). The other rows come from the
            previous window. With several windows, at most ``moved`` rows may be taken from there,
            so that they are among the new rows of the previous window.
    """
    reused = rows - new.shape[1]
    if not reused:
        return new
    assert before is not None
    out = new.new_empty(len(new), rows, *new.shape[2:])
    out[:, reused:] = new
    out[0, :reused] = before[moved : moved + reused]
    if len(new) > 1:
        out[1:, :reused] = out[:-1, moved : moved + reused]
    return out


def _pair_order(positions: int, bit: int) -> Tensor:
    """Return the positions in an order in which addresses that differ only in ``bit`` are adjacent.
    Bit -1 means the order of time."""
    order = torch.arange(positions)
    return order if bit < 0 else order.view(-1, 2, 1 << bit).transpose(1, 2).flatten()
