"""Tests of decimated filters: which are decimated, and their error (model/README.md)."""

import pytest
import torch

from model.config import HOP
from model.fast.filters import NewestFrames, decimated, decimator
from model.front_end.filterbank import Filterbank
from model.storage import load, shipped

MAX_ERROR_DB = -70.0
FRAMES = 64


@pytest.mark.parametrize("name", shipped())
@torch.inference_mode()
def test_filters_of_low_notes_are_decimated_with_a_small_error(name: str) -> None:
    bank = load(name, dtype=torch.float32).get_submodule("network.filterbank")
    assert isinstance(bank, Filterbank)
    torch.manual_seed(0)
    noise = torch.randn(bank.longest + (FRAMES - 1) * HOP)
    plain = bank.power(noise[None])[0].sqrt()
    fast = NewestFrames(bank).power(noise, FRAMES)[:, :-1].t()[bank.order].sqrt()
    error = (fast - plain).square().sum(1) / plain.square().sum(1)
    assert 10 * error.max().log10() < MAX_ERROR_DB
    filters = {size: kernel.transpose(1, 2).flatten(1) for size, kernel in bank.kernels.items()}
    short = [size for size, group in filters.items() if decimated(group, decimator()) is None]
    assert short == ["1024"]
