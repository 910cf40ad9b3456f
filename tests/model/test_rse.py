"""Tests of residual switch units and Beneš networks."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import PAPER, RELEASED_RSE, TEXT_RSE, WINDOW, RSEConfig, StridedConfig
from model.gated import GatedSwitchUnit
from model.rse import ResidualShuffleExchange
from model.switch import ResidualSwitchUnit, SequenceNorm, deinterleave, interleave
from model.symbols import SymbolConfig, SymbolNetwork
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.paths import REPOSITORY

SMALL = RSEConfig(maps=6, blocks=2)
CONFIGS = [
    SMALL,
    replace(RELEASED_RSE, maps=6),
    replace(SMALL, shuffle="paper", activation="relu", norm="none"),
    replace(SMALL, unit="gated"),
]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_invalid_calls_are_rejected() -> None:
    network = ResidualShuffleExchange(SMALL).eval()
    x = torch.randn(2, 10, 6)
    with pytest.raises(ValueError, match="at least one"):
        network(x[:, :0])
    with pytest.raises(ValueError, match=r"not \(10, 6\); add a batch axis: x\[None\]"):
        network(x[0])
    with pytest.raises(ValueError, match=r"use torch.export"):
        torch.jit.trace(network, x)
    torch.testing.assert_close(torch.vmap(network)(x[:, None])[:, 0], network(x))
    with pytest.raises(ValueError, match="8192"):
        TranscriptionModel(replace(PAPER, rse=SMALL)).predict(torch.zeros(1, 100))


@pytest.mark.parametrize("shuffle", ["released", "paper"])
def test_every_output_depends_on_every_input(shuffle: str) -> None:
    config = replace(SMALL, blocks=1, shuffle=shuffle)  # type: ignore[arg-type]
    network = ResidualShuffleExchange(config).double().eval()
    x = torch.randn(1, 16, 6, dtype=torch.double, requires_grad=True)
    y = network(x)
    for position in range(16):
        (gradient,) = torch.autograd.grad(y[0, position].sum(), x, retain_graph=True)
        assert torch.all(gradient[0].abs().sum(dim=1) > 0)


@pytest.mark.parametrize("config", CONFIGS, ids=["paper", "released", "ablated", "gated"])
@pytest.mark.parametrize(("length", "padding"), [(1, 0), (2, 0), (13, 3), (64, 0)])
def test_padding_is_zeros_at_the_end(config: RSEConfig, length: int, padding: int) -> None:
    network = ResidualShuffleExchange(config).eval()
    x = torch.randn(2, length, 6)
    padded = torch.cat([x, torch.zeros(2, padding, 6)], dim=1)
    assert network(x).shape == x.shape
    torch.testing.assert_close(network(x), network(padded)[:, :length])


def amplitude(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()


@torch.inference_mode()
def test_the_amplitude_stays_constant_through_40_layers() -> None:
    """By the paper's text, the amplitude of states is 0.25 and that of each update c is 1. With
    Glorot initialisation, as in the released code, updates have an amplitude of 0.75."""
    config = replace(TEXT_RSE, maps=96)
    x = 0.25 * torch.randn(4, 64, 96)
    for _ in range(40):  # separate weights in each layer, as the paper's derivation assumes
        unit = ResidualSwitchUnit(config)
        update = (unit(x) - 0.9 * x) / unit.update_scale
        assert amplitude(update) == pytest.approx(1, abs=0.03)
        x = interleave(unit(x))
        assert amplitude(x) == pytest.approx(0.25, abs=0.01)
    unit = ResidualSwitchUnit(replace(config, init="released"))
    assert amplitude((unit(x) - 0.9 * x) / unit.update_scale) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("window", [128, 256, 1024])
@torch.inference_mode()
def test_a_smaller_window_uses_the_middle_of_the_window(window: int) -> None:
    front_end = StridedConfig(window=window)  # type: ignore[arg-type]
    model = TranscriptionModel(replace(PAPER, rse=SMALL, front_end=front_end)).eval()
    network = model.network
    assert isinstance(network, StridedNetwork)
    x = torch.randn(2, WINDOW)
    outside = (WINDOW - window) // 2
    predictions = model.predict(x)[:, 0]
    frames = max(1, window // 128 - 1)
    middle = slice(31 - frames // 2, 32 + frames // 2)
    expected = torch.sigmoid(network(x[:, outside : WINDOW - outside]))[:, 0]
    torch.testing.assert_close(predictions[:, middle], expected)
    assert expected.shape[1] == frames
    predictions[:, middle] = 0
    assert predictions.max() < 1e-9
    x[:, :outside] = x[:, WINDOW - outside :] = 0
    torch.testing.assert_close(model.predict(x)[:, 0, middle], expected)


@pytest.mark.parametrize(("length", "padded"), [(1, 2), (5, 8), (8, 8)])
def test_symbol_0_pads_to_a_power_of_two(length: int, padded: int) -> None:
    network = SymbolNetwork(SymbolConfig(5, 3, RSEConfig(maps=8))).eval()
    symbols = torch.randint(1, 5, (2, length))
    padding = torch.zeros(2, padded - length, dtype=torch.long)
    padded_symbols = torch.cat([symbols, padding], dim=1)
    torch.testing.assert_close(network(symbols), network(padded_symbols)[:, :length])


def test_the_documented_examples_run_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    document = (REPOSITORY / "model" / "LAYER.md").read_text()
    training, exporting = re.findall(
        r"^ *```python\n(.*?)^ *```$", document, re.DOTALL | re.MULTILINE
    )
    torch.manual_seed(1)
    names: dict[str, Any] = {}
    exec(training, names)
    share = re.fullmatch(
        r"([\d.]+)% of the digits are in the right position\n", capsys.readouterr().out
    )
    assert share
    assert float(share[1]) > 90
    exec(re.sub(r"^  ", "", exporting, flags=re.MULTILINE), names)
    x = torch.randn(3, 64, 32)
    torch.testing.assert_close(names["program"].module()(x), names["layer"](x))


@given(st.integers(1, 9))
def test_shuffles_rotate_the_bits_of_addresses(bits: int) -> None:
    n = 2**bits
    addresses = torch.arange(n)[None, :, None]
    right, left = deinterleave(addresses).flatten(), interleave(addresses).flatten()
    for address in range(n):
        assert right[(address >> 1) | ((address & 1) << (bits - 1))] == address
        assert left[((address << 1) & (n - 1)) | (address >> (bits - 1))] == address


def test_the_gated_unit_computes_the_paper_formulas() -> None:
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


def test_skip_connections_join_neighbouring_blocks() -> None:
    network = ResidualShuffleExchange(replace(SMALL, unit="gated", dropout=0.0))
    scales = [name for name, _ in network.named_parameters() if name.endswith("skip_scale")]
    assert scales == ["blocks.1.forward_switch.skip_scale", "blocks.1.reverse_switch.skip_scale"]
    x = torch.randn(1, 16, 6)
    with_skips = network(x)
    for name, parameter in network.named_parameters():
        if name in scales:
            torch.nn.init.constant_(parameter, -1.0)  # clamped to 0: no skip connection
    assert not torch.allclose(network(x), with_skips)
    network(x).sum().backward()


def test_residual_scales_weight_the_input() -> None:
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


def test_the_norm_of_silence_is_finite_in_float16() -> None:
    norm = SequenceNorm(3).half()
    assert not norm(torch.zeros(1, 8, 3, dtype=torch.float16)).any()
    x = torch.randn(1, 8, 3)
    y = norm(x.half())
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), SequenceNorm(3)(x), atol=5e-3, rtol=5e-3)
