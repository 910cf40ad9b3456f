"""Small networks for tests, and windows of noise for them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.config import LIVE, PAPER, WINDOW, FilterbankConfig, ModelConfig, RSEConfig
from model.symbols import SymbolConfig, SymbolNetwork
from model.transcriber import TranscriptionModel

TINY = replace(
    LIVE, front_end=FilterbankConfig(channels=2, convolutions=1), rse=RSEConfig(maps=4, blocks=1)
)
SMALL = RSEConfig(maps=12, blocks=1)
FILTERBANK = replace(
    LIVE, rse=SMALL, front_end=FilterbankConfig(channels=8, convolutions=1, lookahead=256)
)
STRIDED = replace(PAPER, rse=SMALL)


def build_network(config: ModelConfig | SymbolConfig) -> TranscriptionModel | SymbolNetwork:
    if isinstance(config, ModelConfig):
        return TranscriptionModel(config)
    return SymbolNetwork(config)


def assert_same_outputs(
    config: ModelConfig, outputs: NDArray[np.float32], expected: NDArray[np.float32], atol: float
) -> None:
    """Compare outputs [..., outputs, frames, pitches]. Up to 2 % of the tuning output may differ:
    in noise, two peaks near a pitch can be equally high."""
    heads = len(config.heads)
    np.testing.assert_allclose(
        outputs[..., :heads, :, :], expected[..., :heads, :, :], atol=atol, rtol=0
    )
    if config.outputs != config.heads:
        differ = np.abs(outputs[..., heads, :, :] - expected[..., heads, :, :]) > 1e-3
        assert differ.mean() < 0.02


def noise(count: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return [(0.1 * rng.standard_normal(WINDOW)).astype(np.float32) for _ in range(count)]
