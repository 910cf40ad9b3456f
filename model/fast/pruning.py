"""Selects the switch units of a shuffle-exchange network that affect the positions to be read.

An output position depends on one unit of the last switch layer, this unit on two units of the layer
before, and so on: 1 + 2 + 4 + ... units instead of n/2 per layer, until all are needed. Skipping
the others does not change the output at these positions.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from model.switch import deinterleave, interleave

Direction = Literal["deinterleave", "interleave", "none"]


@dataclass(frozen=True)
class Layer:
    """One switch layer and how its outputs reach the inputs of the next."""

    block: int | None  # number of its Beneš block; None for the last layer
    reverse: bool  # True in the second half of the block
    shuffle: Direction
    """Permutation of the outputs, if every unit of this layer and the next is computed."""
    gather: list[int] | None
    """Indexes among the outputs of the computed units, sorted by address, of the inputs of the next
    layer, in its order. None if every unit is computed."""


def layers(bits: int, blocks: int) -> list[tuple[int | None, bool, Direction]]:
    """Return block, half and following permutation of every switch layer of a complete network."""
    out: list[tuple[int | None, bool, Direction]] = []
    for block in range(blocks):
        out += [(block, False, "deinterleave")] * (bits - 1)
        out += [(block, True, "interleave")] * (bits - 1)
    return [*out, (None, False, "none")]


def prune(bits: int, blocks: int, positions: range) -> list[Layer]:
    """Return the layers of a network on 2^bits elements that is read at these positions only.
    The first half of the first block is complete, because every position depends on all of the
    input."""
    everything = list(range(1 << bits))
    addresses = torch.arange(1 << bits)[None, :, None]
    sources = {  # the address from which each address is filled
        "deinterleave": deinterleave(addresses).flatten().tolist(),
        "interleave": interleave(addresses).flatten().tolist(),
        "none": everything,
    }
    wanted = list(positions)  # after the current layer's permutation
    pruned: list[Layer] = []
    for block, reverse, direction in reversed(layers(bits, blocks)):
        if wanted == everything:  # and so for all earlier layers
            pruned.append(Layer(block, reverse, direction, None))
            continue
        read = [sources[direction][address] for address in wanted]
        units = sorted({address // 2 for address in read})
        index = {unit: row for row, unit in enumerate(units)}
        gather = [2 * index[address // 2] + address % 2 for address in read]
        pruned.append(Layer(block, reverse, direction, gather))
        wanted = [address for unit in units for address in (2 * unit, 2 * unit + 1)]
    return pruned[::-1]
