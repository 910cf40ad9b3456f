"""A streaming Beneš network: what a window that moves leaves as it was is not computed again.

In the first half of a Beneš block layer i joins the positions whose addresses differ in bit i.
Octaves are the lowest three bits of a position, then come the columns, the newest last. When a
window moves by s columns, every position's address falls by 8 s; a layer whose pairs stay pairs
keeps its outputs, but for those pairs that a new position reaches. With 32 columns, s = 4 and the
8 newest columns changed (``#`` computed again, ``.`` kept, moved by s)::

    bit 0, 1, 2  octaves of a column     ........................########
    bit 3        columns 1 apart         ........................########
    bit 4        columns 2 apart         ........................########
    bit 5        columns 4 apart         ################################   8 does not divide s
    bit 6        columns 8 apart         ################################

The middle of the block depends on all positions and is computed whole; the second half is computed
for the positions that are read (``model.fast.pruning``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.fast.shuffle_exchange import FastShuffleExchange
from model.fast.switch import FastSwitch


class FirstHalf:
    """The first half of a network's first Beneš block, for one stream after another."""

    def __init__(self, exchange: FastShuffleExchange, octaves: int, columns: int) -> None:
        """octaves, columns: powers of two; positions are columns times octaves."""
        self._unit: FastSwitch = exchange.first_unit
        self._octaves = octaves
        self._columns = columns
        self._layers = (octaves * columns).bit_length() - 2

    def advance(self, kept: list[Tensor], changed: Tensor, moved: int) -> list[Tensor]:
        """The inputs of every layer and the output of the last, (positions, m) float32 each.

        kept: the same of the window before, empty for the first one; changed: the newest input
        positions, (newest, m), all of them for the first window; moved: columns.
        """
        states: list[Tensor] = []
        first = self._columns - len(changed) // self._octaves  # the first column that changed
        states.append(_newest(kept[0] if kept else None, changed, moved * self._octaves))
        for bit in range(self._layers):
            distance = 1 << bit  # positions between the two of a pair
            block = max(1, 2 * distance // self._octaves)  # columns that pairs stay within
            first = first // block * block if moved % block == 0 else 0
            pairs = states[-1][first * self._octaves :].view(-1, 2, distance, states[-1].shape[1])
            rows = pairs.transpose(1, 2).reshape(-1, 2 * pairs.shape[3])
            out = self._unit.units(rows).view(-1, distance, 2, pairs.shape[3])
            out = out.transpose(1, 2).reshape(-1, pairs.shape[3])
            before = kept[bit + 1] if kept and first else None
            states.append(_newest(before, out, moved * self._octaves))
        return states


def _newest(kept: Tensor | None, changed: Tensor, moved: int) -> Tensor:
    """What stays of the positions that moved, and those that changed."""
    if kept is None:
        return changed
    return torch.cat([kept[moved : moved + len(kept) - len(changed)], changed])
