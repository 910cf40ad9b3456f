"""The fused layers against the layers one by one."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from model import rse
from model.config import RSEConfig
from model.rse import ResidualShuffleExchange

SMALL = RSEConfig(maps=8, blocks=2, dropout=0.0)


def run(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    y = network(x)
    y.square().sum().backward()
    assert x.grad is not None
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"y": y.detach(), "x": x.grad, **gradients}


def one_by_one(network: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    with monkeypatch.context() as patched:
        patched.setattr(rse, "fits", lambda _: False)
        return run(network, x)


@pytest.mark.parametrize("shuffle", ["released", "paper"])
@pytest.mark.parametrize("length", [1, 2, 4, 13, 32])
def test_values_and_gradients(shuffle: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, shuffle=shuffle)  # type: ignore[arg-type]
    network = ResidualShuffleExchange(config).double()
    x = torch.randn(3, length, 8, dtype=torch.double)
    expected = one_by_one(copy.deepcopy(network), x, monkeypatch)
    torch.testing.assert_close(run(network, x), expected)


def test_under_autocast_the_gradients_are_those_up_to_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    network = ResidualShuffleExchange(replace(SMALL, maps=32))
    x = torch.randn(4, 32, 32)
    exact = one_by_one(copy.deepcopy(network), x, monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        got = run(network, x)
    assert got["y"].dtype == torch.float32
    for name, tensor in exact.items():
        error = (got[name] - tensor).norm() / tensor.norm()
        assert error < 0.02, name


def test_dropout_is_undone_by_its_own_noise() -> None:
    """The gradient through dropout is that of the same elements."""
    network = ResidualShuffleExchange(replace(SMALL, dropout=0.5)).double()
    x = torch.randn(1, 4, 8, dtype=torch.double, requires_grad=True)

    def same_noise(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return network(x)

    assert torch.autograd.gradcheck(same_noise, (x,))


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    network = ResidualShuffleExchange(replace(SMALL, blocks=1, dropout=0.3))
    x = torch.randn(1, 8, 8)
    mean = network(x.expand(2000, -1, -1)).mean(0, keepdim=True)
    torch.testing.assert_close(mean, network.eval()(x), rtol=0.1, atol=0.06)
