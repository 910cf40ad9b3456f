"""Tests of the command that writes a network's raw outputs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import PITCHES, ModelConfig, RSEConfig
from model.predict import BATCH, main
from model.storage import save_weights
from model.symbols import SymbolConfig
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.commands import run
from tests.networks import TINY, build_network

TINY_RSE = RSEConfig(maps=4, blocks=1)
STRIDED = ModelConfig(rse=TINY_RSE, heads=("frame", "onset"))
SYMBOLS = SymbolConfig(7, 3, TINY_RSE)


def save_network(folder: Path, config: ModelConfig | SymbolConfig) -> tuple[Path, torch.nn.Module]:
    network = build_network(config)
    path = folder / "w.safetensors"
    save_weights(network, {"config": config.to_json()}, path)
    return path, network.eval()


def predict(folder: Path, weights: Path, inputs: NDArray) -> NDArray:
    np.save(folder / "x.npy", inputs)
    assert run(main, weights, folder / "x.npy", folder / "y.out").status == 0
    outputs = np.load(folder / "y.out")  # numpy.save would append .npy
    assert outputs.dtype == np.float32
    return outputs


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_symbol_networks_output_logits(tmp_path: Path, dtype: type) -> None:
    weights, network = save_network(tmp_path, SYMBOLS)
    symbols: NDArray = np.random.default_rng(0).integers(0, 7, (BATCH + 2, 8)).astype(dtype)
    outputs = predict(tmp_path, weights, symbols)
    expected = network(torch.from_numpy(symbols.astype(np.int64)))
    np.testing.assert_allclose(outputs, expected.detach(), atol=1e-6)


def test_strided_networks_output_all_positions_and_heads(tmp_path: Path) -> None:
    weights, network = save_network(tmp_path, STRIDED)
    windows = np.random.default_rng(0).normal(size=(3, 512))
    outputs = predict(tmp_path, weights, windows)
    assert outputs.shape == (3, 128, 2 * PITCHES)
    assert isinstance(network, TranscriptionModel)
    assert isinstance(network.network, StridedNetwork)
    raw = network.network.raw(torch.from_numpy(windows.astype(np.float32)))
    np.testing.assert_allclose(outputs, raw.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("config", "inputs", "message"),
    [
        (SYMBOLS, np.zeros(8, int).tobytes(), "magic string"),
        (SYMBOLS, np.zeros(8, int), r"expected numbers of shape \(batch, length\)"),
        (SYMBOLS, np.array([["1", "2"]]), "expected numbers"),
        (SYMBOLS, np.full((1, 8), 7), "expected symbols 0 ... 6"),
        (SYMBOLS, np.full((1, 8), 0.5), "expected symbols"),
        (STRIDED, np.zeros((1, 510)), "multiple of 4"),
        (STRIDED, np.full((1, 512), np.nan), "finite"),
        (TINY, np.zeros((1, 8192)), "neither a symbol network nor"),
    ],
)
def test_invalid_inputs_are_rejected(
    tmp_path: Path, config: ModelConfig | SymbolConfig, inputs: NDArray | bytes, message: str
) -> None:
    weights, _ = save_network(tmp_path, config)
    if isinstance(inputs, bytes):
        (tmp_path / "x.npy").write_bytes(inputs)
    else:
        np.save(tmp_path / "x.npy", inputs)
    status, _, error = run(main, weights, tmp_path / "x.npy", tmp_path / "y.npy")
    assert status == 1
    assert error.startswith("error: ")
    assert re.search(message, error)
    assert not (tmp_path / "y.npy").exists()
