"""Selects the switch units of a shuffle-exchange network that affect the requested positions.

An output position depends on one unit of the last switch layer, on two units of the layer before,
on four units of the layer before that, and so on, up to all n/2 units of a layer. Skipping the
other units does not change the output at this position.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from model.switch import deinterleave, interleave

Direction = Literal["deinterleave", "interleave", "none"]


@dataclass(frozen=True)
class Layer:
    """A switch layer, and how its outputs become the inputs of the next layer."""

    block: int | None  # number of its Beneš block; None for the last layer
    reverse: bool  # True in the second half of the block
    shuffle: Direction  # permutation of the outputs if ``gather`` is None
    gather: list[int] | None
    """For each input of the next layer, in order, its index among the outputs of the computed
    units, which are sorted by address. None if every output of this layer is used."""


def layers(bits: int, blocks: int) -> list[tuple[int | None, bool, Direction]]:
    """Return the block, the half (True: second) and the next shuffle of every switch layer."""
    out: list[tuple[int | None, bool, Direction]] = []
    for block in range(blocks):
        out += [(block, False, "deinterleave")] * (bits - 1)
        out += [(block, True, "interleave")] * (bits - 1)
    return [*out, (None, False, "none")]


def prune(bits: int, blocks: int, positions: range) -> list[Layer]:
    """Return the layers of a network on 2^bits elements, with only the units that affect the output
    at these positions. The first half of the first block has all units: they affect every output.
    """
    everything = list(range(1 << bits))
    addresses = torch.arange(1 << bits)[None, :, None]
    sources = {  # by address: address of the element that the permutation moves there
        "deinterleave": deinterleave(addresses).flatten().tolist(),
        "interleave": interleave(addresses).flatten().tolist(),
        "none": everything,
    }
    needed = list(positions)  # addresses after the current layer's permutation
    pruned: list[Layer] = []
    for block, reverse, direction in reversed(layers(bits, blocks)):
        if needed == everything:  # also true of all earlier layers
            pruned.append(Layer(block, reverse, direction, None))
            continue
        outputs = [sources[direction][address] for address in needed]
        units = sorted({address // 2 for address in outputs})
        row_of = {unit: row for row, unit in enumerate(units)}
        gather = [2 * row_of[address // 2] + address % 2 for address in outputs]
        pruned.append(Layer(block, reverse, direction, gather))
        needed = [address for unit in units for address in (2 * unit, 2 * unit + 1)]
    return pruned[::-1]
