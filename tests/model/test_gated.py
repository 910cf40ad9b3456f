"""The gated unit of the original Shuffle-Exchange network, and the paper's ablations."""

import torch

from model.config import RSEConfig
from model.gated import GatedSwitchUnit
from model.rse import ResidualShuffleExchange
from model.switch import ResidualSwitchUnit

GATED = RSEConfig(maps=6, blocks=2, unit="gated", dropout=0.0)


def test_the_unit_computes_the_formulas_of_the_paper() -> None:
    torch.manual_seed(0)
    unit = GatedSwitchUnit(RSEConfig(maps=4, unit="gated")).double()
    x = torch.randn(1, 2, 4, dtype=torch.double)
    s = x.flatten()  # one pair
    w, b = unit.gates.weight, unit.gates.bias
    r1, r2, u = (torch.sigmoid(w[i : i + 8] @ s + b[i : i + 8]) for i in (0, 8, 16))
    c1 = torch.tanh(unit.candidate1.weight @ (r1 * s) + unit.candidate1.bias)
    c2 = torch.tanh(unit.candidate2.weight @ (r2 * s) + unit.candidate2.bias)
    swapped = torch.cat([s[:2], s[6:8], s[4:6], s[2:4]])
    expected = u * swapped + (1 - u) * torch.cat([c1, c2])
    torch.testing.assert_close(unit(x).flatten(), expected)


def test_skip_connections_join_the_same_layers_of_neighbouring_blocks() -> None:
    network = ResidualShuffleExchange(GATED)
    scales = [name for name, _ in network.named_parameters() if name.endswith("skip_scale")]
    assert scales == ["blocks.1.forward_switch.skip_scale", "blocks.1.reverse_switch.skip_scale"]
    x = torch.randn(1, 16, 6)
    with_skips = network(x)
    for name, parameter in network.named_parameters():
        if name in scales:
            torch.nn.init.constant_(parameter, -1.0)  # clamped: none
    assert not torch.allclose(network(x), with_skips)
    network(x).sum().backward()


def test_without_residual_the_unit_puts_out_its_update_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 6)
    units = {}
    for scale in ("learned", "one", "none"):
        torch.manual_seed(1)
        config = RSEConfig(maps=6, residual_scale=scale)  # type: ignore[arg-type]
        units[scale] = ResidualSwitchUnit(config)
    update = units["none"](x)
    h = units["one"].update_scale
    torch.testing.assert_close(units["one"](x), x + h * update)
    torch.testing.assert_close(units["learned"](x), 0.9 * x + h * update)
    assert "s" not in dict(units["one"].named_parameters())
