"""The fixed permutations, as properties."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from model.switch import deinterleave, interleave

bits = st.integers(min_value=1, max_value=9)


def addresses(b: int) -> torch.Tensor:
    return torch.arange(2**b)[None, :, None]


@given(bits)
def test_an_element_moves_to_its_rotated_address(b: int) -> None:
    n = 2**b
    right, left = deinterleave(addresses(b)).flatten(), interleave(addresses(b)).flatten()
    for address in range(n):
        rotated_right = (address >> 1) | ((address & 1) << (b - 1))
        rotated_left = ((address << 1) & (n - 1)) | (address >> (b - 1))
        assert right[rotated_right] == address
        assert left[rotated_left] == address
