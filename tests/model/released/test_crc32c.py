"""CRC-32C by known values and by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.released import crc32c as module
from model.released.crc32c import crc32c, masked_crc32c


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, appendix B.4, and the usual check value
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_known_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


def by_definition(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (module.POLYNOMIAL if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(0, 3000), chunk=st.integers(1, 3000))
def test_lanes_and_chunks_change_nothing(seed: int, length: int, chunk: int) -> None:
    data = np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        assert crc32c(data) == by_definition(data)


def test_the_mask_rotates_and_adds() -> None:
    rotated = 0xE3069283 >> 15 | (0xE3069283 << 17) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == (rotated + 0xA282EAD8) % 2**32
