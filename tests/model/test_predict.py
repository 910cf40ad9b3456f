"""Raw outputs of every kind of network, and what it refuses."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import FRAMES, HEADS, PITCHES, WINDOW, ModelConfig, RSEConfig
from model.predict import BATCH, main
from model.storage import save_weights
from model.symbols import SymbolConfig, SymbolNetwork
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.networks import TINY

TINY_RSE = RSEConfig(maps=4, blocks=1)
STRIDED = ModelConfig(rse=TINY_RSE, heads=("frame", "onset"))
SYMBOLS = SymbolConfig(7, 3, TINY_RSE)


def saved(folder: Path, config: ModelConfig | SymbolConfig) -> tuple[Path, torch.nn.Module]:
    torch.manual_seed(0)
    network: torch.nn.Module
    network = (
        TranscriptionModel(config) if isinstance(config, ModelConfig) else SymbolNetwork(config)
    )
    path = folder / "w.safetensors"
    save_weights(network, {"config": config.to_json()}, path)
    return path, network.eval()


def run(folder: Path, weights: Path, inputs: NDArray) -> NDArray:
    np.save(folder / "x.npy", inputs)
    assert main([str(weights), str(folder / "x.npy"), str(folder / "y.out")]) == 0
    found = np.load(folder / "y.out")  # the very name that was asked for
    assert found.dtype == np.float32
    return found


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_networks_over_symbols_give_their_logits(tmp_path: Path, dtype: type) -> None:
    weights, network = saved(tmp_path, SYMBOLS)
    symbols: NDArray = np.random.default_rng(0).integers(0, 7, (BATCH + 2, 8)).astype(dtype)
    found = run(tmp_path, weights, symbols)
    expected = network(torch.from_numpy(symbols.astype(np.int64)))
    np.testing.assert_allclose(found, expected.detach(), atol=1e-6)


def test_strided_networks_give_all_positions_and_heads(tmp_path: Path) -> None:
    weights, network = saved(tmp_path, STRIDED)
    windows = np.random.default_rng(0).normal(size=(3, 512))
    found = run(tmp_path, weights, windows)
    assert found.shape == (3, 128, 2 * PITCHES)
    assert isinstance(network, TranscriptionModel)
    assert isinstance(network.network, StridedNetwork)
    raw = network.network.raw(torch.from_numpy(windows.astype(np.float32)))
    np.testing.assert_allclose(found, raw.detach(), atol=1e-6)


def test_filterbank_networks_give_the_frames_before_the_offset(tmp_path: Path) -> None:
    weights, network = saved(tmp_path, TINY)
    windows = 0.1 * np.random.default_rng(0).normal(size=(2, WINDOW)).astype(np.float32)
    found = run(tmp_path, weights, windows)
    assert found.shape == (2, FRAMES, len(HEADS) * PITCHES)
    assert isinstance(network, TranscriptionModel)
    probabilities = network.predict(torch.from_numpy(windows))
    logits = torch.from_numpy(found).unflatten(2, (len(HEADS), PITCHES)).transpose(1, 2) - 4
    heads = probabilities[:, : len(HEADS)]  # the row of peaks after them has no logits
    torch.testing.assert_close(torch.sigmoid(logits), heads, atol=1e-5, rtol=0)
    assert (found[..., :20] == -26).all()


@pytest.mark.parametrize(
    ("config", "inputs", "message"),
    [
        (SYMBOLS, np.zeros(8, int), r"expected inputs of shape \(batch, length\)"),
        (SYMBOLS, np.full((1, 8), 7), "expected symbols 0 ... 6, got 7"),
        (SYMBOLS, np.full((1, 8), np.nan), "symbols"),
        (STRIDED, np.zeros((1, 510)), "multiple of 4"),
        (STRIDED, np.full((1, 512), np.nan), "must be finite"),
        (TINY, np.zeros((1, 1024)), "windows of 8192"),
    ],
)
def test_unsuitable_inputs_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    config: ModelConfig | SymbolConfig,
    inputs: NDArray,
    message: str,
) -> None:
    weights, _ = saved(tmp_path, config)
    np.save(tmp_path / "x.npy", inputs)
    assert main([str(weights), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert re.search(message, error)
    assert not (tmp_path / "y.npy").exists()


def test_files_that_are_missing_or_not_what_they_should_be_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights, _ = saved(tmp_path, SYMBOLS)
    text = tmp_path / "x.npy"
    for content in (b"", b"hello", b"\x93NUMPY\x01\x00"):
        text.write_bytes(content)
        assert main([str(weights), str(text), "y.npy"]) == 1
        assert "x.npy" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", np.zeros((1, 8)))
    assert main([str(weights), str(tmp_path / "x.npz"), "y.npy"]) == 1
    assert "x.npz is an archive" in capsys.readouterr().err
    assert main([str(weights), str(tmp_path / "none.npy"), "y.npy"]) == 1
    assert "none.npy" in capsys.readouterr().err
    assert main([str(tmp_path / "none.safetensors"), str(text), "y.npy"]) == 1
    assert "no weights" in capsys.readouterr().err
    np.save(text, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert main([str(weights), str(text), "y.npy"]) == 1
    assert "x.npy" in capsys.readouterr().err
