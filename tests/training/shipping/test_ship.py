"""The mean of two sets of weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.config import RSEConfig
from model.transcriber import TranscriptionModel
from tests.networks import TINY
from training.shipping.ship import average


def test_every_weight_is_the_mean_of_both() -> None:
    one, other = TranscriptionModel(TINY), TranscriptionModel(TINY)
    with torch.no_grad():
        for network in (one, other):
            for parameter in network.parameters():
                parameter.normal_()
    both = [[p.clone() for p in network.parameters()] for network in (one, other)]
    average(one, other)
    for mean, mine, theirs in zip(one.parameters(), *both, strict=True):
        torch.testing.assert_close(mean, (mine + theirs) / 2)
    for kept, theirs in zip(other.parameters(), both[1], strict=True):
        assert torch.equal(kept, theirs)


def test_weights_of_another_network_are_refused() -> None:
    wider = replace(TINY, rse=RSEConfig(maps=8, blocks=1))
    with pytest.raises(ValueError, match="another network"):
        average(TranscriptionModel(TINY), TranscriptionModel(wider))
