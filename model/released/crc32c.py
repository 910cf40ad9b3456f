"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) in numpy, fast on large arrays.

A CRC is linear over GF(2): the data is cut into lanes that are processed side by side, then the
lanes' remainders are shifted into place and added.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # reflected
MASK_DELTA = 0xA282EAD8  # of the masked form that tables and checkpoints store
CHUNK = 1 << 24  # bytes at once, to bound the memory
SHORT = 256  # bytes up to which lanes are slower

Words = NDArray[np.uint32]


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC of the data as an unsigned 32-bit number."""
    values = np.frombuffer(data, np.uint8)
    state = 0xFFFFFFFF
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        state = _in_lanes(chunk, state) if len(chunk) > SHORT else _byte_by_byte(chunk, state)
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC rotated and shifted, so data that contains its own CRC stays protected."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


@cache
def _table() -> Words:
    """The remainder of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


def _byte_by_byte(data: NDArray[np.uint8], state: int) -> int:
    table = _table().tolist()
    for byte in data.tolist():
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _in_lanes(data: NDArray[np.uint8], state: int) -> int:
    """The same for at least four bytes."""
    count = 1 << (int(len(data) ** 0.5).bit_length() - 1)  # lanes, a power of two
    length = -(-len(data) // count)  # bytes of a lane
    padding = count * length - len(data)  # zeros in front of a zero state change nothing
    lanes = np.zeros(count * length, np.uint8)
    lanes[padding:] = data
    lanes[padding : padding + 4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    # 32 extra lanes of zeros advance each bit of a state by one lane: the shift by its length.
    columns = np.zeros((length, count + 32), np.uint8)
    columns[:, :count] = lanes.reshape(count, length).T
    states = np.zeros(count + 32, np.uint32)
    states[count:] = np.uint32(1) << np.arange(32, dtype=np.uint32)
    table = _table()
    for column in columns:
        states = table[(states ^ column) & 0xFF] ^ (states >> 8)
    remainders, shift = states[:count], states[count:]
    while len(remainders) > 1:
        remainders = _apply(shift, remainders[0::2]) ^ remainders[1::2]
        shift = _apply(shift, shift)
    return int(remainders[0])


def _apply(shift: Words, states: Words) -> Words:
    """A linear map, given as the images of the 32 bits, on each state."""
    out = np.zeros_like(states)
    for bit, image in enumerate(shift):
        out ^= image * ((states >> np.uint32(bit)) & np.uint32(1))
    return out
