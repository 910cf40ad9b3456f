"""The Triton kernel beside the plain unit: ``python -m tests.model.fast.check_triton_switch cpu``.

On a processor it needs ``TRITON_INTERPRET=1``, whose products know no bfloat16: float16 stands in.
"""

import sys
from dataclasses import replace
from itertools import product
from unittest import mock

import torch

from model.config import ACCURATE, LIVE, RSEConfig
from model.fast.shuffle_exchange import FastShuffleExchange, fused_switch
from model.fast.switch import FastSwitch
from model.fast.triton_switch import TritonSwitch, fits
from model.rse import ResidualShuffleExchange
from model.shuffle import Direction, deinterleave, interleave
from model.switch import ResidualSwitchUnit

UNITS = (
    RSEConfig(maps=24),
    RSEConfig(maps=16, norm="none", activation="sigmoid_gelu", shuffle="paper"),
    RSEConfig(maps=8, activation="relu", residual_scale="one"),
)
DIRECTIONS: tuple[Direction, ...] = ("none", "deinterleave", "interleave")
SHAPES = ((2, 128), (3, 4))  # batch, n: more pairs than a program takes, and fewer


def main() -> None:
    """Raises AssertionError where the two differ."""
    device = sys.argv[1]
    half = torch.float16 if device == "cpu" else torch.bfloat16
    cases = 0
    for config, dtype in product(UNITS, (torch.float32, half)):
        torch.manual_seed(0)
        unit = ResidualSwitchUnit(config).to(device).eval()
        torch.nn.init.normal_(unit.w.bias)
        assert fits(unit)
        kernel = TritonSwitch(unit, dtype)
        arranged = FastSwitch(unit, dtype)
        tolerance = 2e-6 if dtype == torch.float32 else 2e-2
        for direction, (batch, n) in product(DIRECTIONS, SHAPES):
            x = 0.25 * torch.randn(batch, n, config.maps, device=device)
            with torch.inference_mode():
                expected = unit(x)
                if direction == "deinterleave":
                    expected = deinterleave(expected)
                elif direction == "interleave":
                    expected = interleave(expected)
                for other in (expected, arranged(x, direction)):
                    torch.testing.assert_close(
                        kernel(x, direction), other, atol=tolerance, rtol=tolerance
                    )
            cases += 1
    for model in (LIVE, ACCURATE):
        whole_network(replace(model.rse, maps=16), device)
        cases += 1
    assert not fits(ResidualSwitchUnit(RSEConfig(maps=24, norm="sequence")))
    assert not fits(ResidualSwitchUnit(RSEConfig(maps=6)))
    assert not fits(ResidualSwitchUnit(RSEConfig(maps=192)))
    print(f"{cases} cases agree")


@torch.inference_mode()
def whole_network(config: RSEConfig, device: str) -> None:
    """A configuration's blocks of kernels, read in full and in part, beside the plain network."""
    torch.manual_seed(0)
    network = ResidualShuffleExchange(config).to(device).eval()

    def switch(unit: ResidualSwitchUnit, dtype: torch.dtype) -> FastSwitch:
        kernel = fused_switch(unit, dtype)
        assert kernel is not None
        return kernel

    with mock.patch("model.fast.shuffle_exchange.fast_switch", switch):
        fast = FastShuffleExchange(network, torch.float32)
    x = 0.25 * torch.randn(2, 64, config.maps, device=device)
    expected = network(x)
    for read in (range(64), range(40, 44)):
        torch.testing.assert_close(fast(x, read), expected[:, list(read)], atol=5e-6, rtol=1e-5)


if __name__ == "__main__":
    main()
