"""Which switch units of a shuffle-exchange network reach the positions that are read.

An output position depends on one unit of the last switch layer, that unit on two of the layer
before, and so on: 1 + 2 + 4 + ... units instead of n/2 a layer, until all are needed. The others
are dead: leaving them out changes no number that is read, where the units' norm stays within a
unit (``RSEConfig.norm`` of "feature" or "none").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Direction = Literal["deinterleave", "interleave", "none"]

_OPPOSITE: dict[Direction, Direction] = {
    "deinterleave": "interleave",
    "interleave": "deinterleave",
    "none": "none",
}


@dataclass(frozen=True)
class Layer:
    """One switch layer and the way from its outputs to the inputs of the next.

    Attributes:
        block: the Beneš block it belongs to; None for the last layer.
        reverse: whether it is of the block's second half.
        shuffle: the permutation that follows, where every unit of this layer and the next is
            computed.
        units: units computed.
        gather: where fewer are: which of the outputs computed here, [2 * units] in ascending
            order of their addresses, the next layer (or the reader) takes, in its order.
    """

    block: int | None
    reverse: bool
    shuffle: Direction
    units: int
    gather: tuple[int, ...] | None


def source(address: int, direction: Direction, bits: int) -> int:
    """Where the element came from that a permutation of 2^bits elements puts at an address."""
    match direction:
        case "deinterleave":  # a goes to a rotated right, so it came from the left rotation
            return ((address << 1) | (address >> (bits - 1))) & ((1 << bits) - 1)
        case "interleave":
            return (address >> 1) | ((address & 1) << (bits - 1))
        case _:
            return address


def layers(bits: int, blocks: int, shuffle: Direction) -> list[tuple[int | None, bool, Direction]]:
    """Block, half and following permutation of every switch layer of a whole network."""
    out: list[tuple[int | None, bool, Direction]] = []
    for block in range(blocks):
        out += [(block, False, shuffle)] * (bits - 1)
        out += [(block, True, _OPPOSITE[shuffle])] * (bits - 1)
    return [*out, (None, False, "none")]


@lru_cache(maxsize=256)
def prune(
    bits: int, blocks: int, shuffle: Direction, positions: tuple[int, ...]
) -> tuple[Layer, ...]:
    """The layers of a network on 2^bits elements whose output is read at these positions only.

    Every layer of a network's first half block is needed whole: any position depends on all of
    the input. Raises ValueError where no position is read.
    """
    if not positions:
        raise ValueError("a network is read at one position at least")
    everything = range(1 << bits)
    # Addresses behind the permutation of the layer at hand.
    wanted: Sequence[int] = everything if positions == tuple(everything) else positions
    pruned: list[Layer] = []
    for block, reverse, direction in reversed(layers(bits, blocks, shuffle)):
        if wanted == everything:  # and so of every layer before
            pruned.append(Layer(block, reverse, direction, len(everything) // 2, None))
            continue
        taken = [source(address, direction, bits) for address in wanted]
        units = sorted({address // 2 for address in taken})
        place = {unit: row for row, unit in enumerate(units)}
        gather = tuple(2 * place[a // 2] + a % 2 for a in taken)
        pruned.append(Layer(block, reverse, direction, len(units), gather))
        wanted = [address for unit in units for address in (2 * unit, 2 * unit + 1)]
        if len(wanted) == len(everything):
            wanted = everything
    return tuple(reversed(pruned))
