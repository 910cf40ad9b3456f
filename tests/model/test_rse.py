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
def test_padding_is_zeros_at_the_end(config: RSEConfig) -> None:
    network = ResidualShuffleExchange(config).eval()
    x = torch.randn(2, 13, 6)
    padded = torch.cat([x, torch.zeros(2, 3, 6)], dim=1)
    torch.testing.assert_close(network(x), network(padded)[:, :13])


@pytest.mark.parametrize("config", FLAVOURS, ids=["paper", "released", "ablated", "gated"])
@pytest.mark.parametrize("length", [1, 2, 13, 64])
def test_any_length_keeps_its_shape(config: RSEConfig, length: int) -> None:
    network = ResidualShuffleExchange(config).eval()
    assert network(torch.randn(2, length, 6)).shape == (2, length, 6)
