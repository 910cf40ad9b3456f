"""Residual switch units and the network of Beneš blocks."""

from dataclasses import replace

import pytest
import torch

from model.config import RELEASED_RSE, RSEConfig
from model.rse import ResidualShuffleExchange

SMALL = RSEConfig(maps=6, blocks=2)
FLAVOURS = [
    SMALL,
    replace(RELEASED_RSE, maps=6),
    replace(SMALL, shuffle="paper", activation="relu", norm="none"),
    replace(SMALL, unit="gated"),
]


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ResidualShuffleExchange(SMALL)(torch.zeros(1, 0, 6))


@pytest.mark.parametrize("shuffle", ["released", "paper"])
def test_every_output_depends_on_every_input(shuffle: str) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, blocks=1, shuffle=shuffle)  # type: ignore[arg-type]
    network = ResidualShuffleExchange(config).double().eval()
    x = torch.randn(1, 16, 6, dtype=torch.double, requires_grad=True)
    y = network(x)
    for position in range(16):
        (gradient,) = torch.autograd.grad(y[0, position].sum(), x, retain_graph=True)
        assert torch.all(gradient[0].abs().sum(dim=1) > 0)


@pytest.mark.parametrize("config", FLAVOURS, ids=["paper", "released", "ablated", "gated"])
@pytest.mark.parametrize(("length", "padding"), [(1, 0), (2, 0), (13, 3), (64, 0)])
def test_padding_is_zeros_at_the_end(config: RSEConfig, length: int, padding: int) -> None:
    network = ResidualShuffleExchange(config).eval()
    x = torch.randn(2, length, 6)
    padded = torch.cat([x, torch.zeros(2, padding, 6)], dim=1)
    assert network(x).shape == x.shape
    torch.testing.assert_close(network(x), network(padded)[:, :length])
