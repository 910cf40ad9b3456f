"""Symbol networks: weights and configurations (outputs: test_oracles.py)."""

from pathlib import Path

import pytest
import torch

from model.config import LIVE, RSEConfig
from model.storage import WeightsError, save_weights
from model.symbols import SymbolConfig, SymbolNetwork, load_symbol_network

CONFIG = SymbolConfig(5, 4, RSEConfig(maps=4, blocks=1))


@pytest.mark.parametrize("word_features", [0, 7])
def test_weights_are_read_back(tmp_path: Path, word_features: int) -> None:
    config = SymbolConfig(5, 4, CONFIG.rse, word_features)
    network = SymbolNetwork(config).eval()
    save_weights(network, {"config": config.to_json()}, tmp_path / "x.safetensors")
    loaded = load_symbol_network(tmp_path / "x.safetensors")
    assert loaded.config == config
    assert not loaded.training
    symbols = torch.randint(0, 5, (2, 16))
    torch.testing.assert_close(loaded(symbols), network(symbols))


@pytest.mark.parametrize(
    "change", [{"kind": "other"}, {"rse": {"maps": 4, "wings": 2}}, {"wings": 2}]
)
def test_other_configurations_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not the configuration of a symbol network"):
        SymbolConfig.from_json({**CONFIG.to_json(), **change})


def test_transcription_and_symbol_weights_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_weights(SymbolNetwork(CONFIG), {"config": LIVE.to_json()}, path)
    with pytest.raises(WeightsError, match="not the configuration of a symbol network"):
        load_symbol_network(path)
