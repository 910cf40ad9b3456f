"""Narrower networks that start from the most important features of a wide one."""

from dataclasses import replace

import torch

from model.config import WINDOW, FilterbankConfig
from model.transcriber import FilterbankNetwork, TranscriptionModel
from tests.networks import TINY
from training.loop.narrow import narrow


def wide() -> TranscriptionModel:
    assert isinstance(TINY.front_end, FilterbankConfig)
    front_end = replace(TINY.front_end, channels=8)
    config = replace(TINY, front_end=front_end, rse=replace(TINY.rse, hidden_factor=2))
    torch.manual_seed(0)
    return TranscriptionModel(config).eval()


@torch.no_grad()
def test_features_that_nothing_listens_to_are_the_ones_left_out() -> None:
    network = wide()
    filterbank = network.network
    assert isinstance(filterbank, FilterbankNetwork)
    for deaf in (1, 4, 5):
        filterbank.convolutions.stem.weight[deaf] = 0
        for norm in [filterbank.convolutions.stem_norm, *filterbank.convolutions.norms]:
            norm.weight[deaf] = 0
    windows = 0.3 * torch.randn(2, WINDOW)
    narrowed = narrow(network, channels=5, hidden_factor=2).eval()
    assert torch.allclose(narrowed.predict(windows), network.predict(windows), atol=1e-5)


@torch.no_grad()
def test_hidden_features_are_halved_and_the_rest_is_kept() -> None:
    network = wide()
    narrowed = narrow(network, channels=8, hidden_factor=1)
    before, after = network.state_dict(), narrowed.state_dict()
    unit = "network.rse.last."
    kept = [row.tolist() in after[f"{unit}z.weight"].tolist() for row in before[f"{unit}z.weight"]]
    assert sum(kept) == len(kept) // 2
    importance = before[f"{unit}z.weight"].norm(dim=1) * before[f"{unit}w.weight"].norm(dim=0)
    assert importance[torch.tensor(kept)].min() >= importance[~torch.tensor(kept)].max()
    same = [name for name in before if before[name].shape == after[name].shape]
    assert all(torch.equal(before[name], after[name]) for name in same)
