"""Which switch units of a shuffle-exchange network reach the positions that are read.

An output position depends on one unit of the last switch layer, that unit on two of the previous
layer, and so on: 1 + 2 + 4 + ... units instead of n/2 per layer, until all are needed. Skipping the
others changes nothing that is read, provided the norm stays within a unit (``RSEConfig.norm`` of
"feature" or "none").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from model.shuffle import Direction

_OPPOSITE: dict[Direction, Direction] = {
    "deinterleave": "interleave",
    "interleave": "deinterleave",
    "none": "none",
}


@dataclass(frozen=True)
class Layer:
    """One switch layer and how its outputs reach the inputs of the next."""

    block: int | None
    """The Beneš block it belongs to; None for the last layer."""
    reverse: bool
    """Whether it is in the block's second half."""
    shuffle: Direction
    """The permutation that follows if every unit of this layer and the next is computed."""
    units: int
    """Units computed."""
    gather: tuple[int, ...] | None
    """Otherwise, which of the outputs computed here ([2 * units], in ascending order of address)
    the next layer or the reader takes, in its order."""


def source(address: int, direction: Direction, bits: int) -> int:
    """The address from which a permutation of 2^bits elements fills `address`."""
    match direction:
        case "deinterleave":  # a goes to a rotated right, so it came from the left rotation
            return ((address << 1) | (address >> (bits - 1))) & ((1 << bits) - 1)
        case "interleave":
            return (address >> 1) | ((address & 1) << (bits - 1))
        case _:
            return address


def layers(bits: int, blocks: int, shuffle: Direction) -> list[tuple[int | None, bool, Direction]]:
    """Block, half and following permutation of every switch layer of a full network."""
    out: list[tuple[int | None, bool, Direction]] = []
    for block in range(blocks):
        out += [(block, False, shuffle)] * (bits - 1)
        out += [(block, True, _OPPOSITE[shuffle])] * (bits - 1)
    return [*out, (None, False, "none")]


@lru_cache(maxsize=256)
def prune(
    bits: int, blocks: int, shuffle: Direction, positions: tuple[int, ...]
) -> tuple[Layer, ...]:
    """The layers of a network on 2^bits elements that is read at these positions only.

    The first half of the first block is needed in full, since every position depends on all of the
    input. Raises ValueError if positions is empty.
    """
    if not positions:
        raise ValueError("at least one position must be read")
    everything = range(1 << bits)
    # Addresses after the current layer's permutation.
    wanted: Sequence[int] = everything if positions == tuple(everything) else positions
    pruned: list[Layer] = []
    for block, reverse, direction in reversed(layers(bits, blocks, shuffle)):
        if wanted == everything:  # and so for all earlier layers
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
