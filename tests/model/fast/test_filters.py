"""Filters on decimated audio hear what the filterbank hears."""

import pytest
import torch

from model import storage
from model.config import HOP, WINDOW
from model.fast.filters import NewestFrames
from model.front_end.filterbank import Filterbank
from model.transcriber import FilterbankNetwork


@pytest.fixture(scope="module", params=["live", "light"])
def bank(request: pytest.FixtureRequest) -> Filterbank:
    network = storage.load(request.param).network
    assert isinstance(network, FilterbankNetwork)
    return network.filterbank


@pytest.mark.parametrize("frames", [1, 8, 32])
def test_frames_are_those_of_the_filterbank(bank: Filterbank, frames: int) -> None:
    window = 0.1 * torch.randn(WINDOW, generator=torch.Generator().manual_seed(frames))
    whole = bank.power(window[None, WINDOW - bank.longest - (frames - 1) * HOP :])[0]
    newest = NewestFrames(bank).power(window, frames)
    assert newest.shape == (frames, bank.bins + 1)
    assert not newest[:, -1].any()
    # White noise has as much where a filter should hear nothing as where it should hear.
    torch.testing.assert_close(newest[:, bank.order].T.sqrt(), whole.sqrt(), atol=1e-5, rtol=0)
