"""Tests that the released networks reproduce recorded outputs of the authors' code."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from model.import_tf import from_released, infer_config
from model.symbols import SymbolNetwork
from model.transcriber import StridedNetwork, TranscriptionModel
from tests.networks import build_network
from tests.paths import SHARED

ORACLES = SHARED / "reference" / "oracles"
FORWARD = sorted(p for p in ORACLES.glob("*_n*_h*.npz") if not p.name.startswith("train_"))
MUSICNET = sorted(ORACLES.glob("musicnet_w*_h*.npz"))

pytestmark = pytest.mark.skipif(not ORACLES.is_dir(), reason=f"no reference outputs at {ORACLES}")


def load_oracle(path: Path) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return the recorded network and all recorded arrays."""
    with np.load(path) as file:
        blocks = json.loads(str(file["meta"]))["n_blocks"]
        arrays = {k: torch.as_tensor(file[k]) for k in file.files if k != "meta"}
    variables = {k: v for k, v in arrays.items() if k.startswith("var_lengths/")}
    shapes = {name: tuple(value.shape) for name, value in variables.items()}
    config = infer_config(shapes, "recorded")
    assert config.rse.blocks == blocks
    network = build_network(config)
    network.load_state_dict(from_released(network, variables))
    return network.eval(), arrays


@pytest.mark.parametrize("path", FORWARD, ids=lambda p: p.stem)
def test_symbol_networks_equal_the_released_code(path: Path) -> None:
    network, arrays = load_oracle(path)
    assert isinstance(network, SymbolNetwork)
    with torch.inference_mode():
        embedded = network.embed(arrays["in/x"].long())
        prediction = network(arrays["in/x"].long())
    torch.testing.assert_close(embedded, arrays["out/net_in"], atol=1e-5, rtol=0)
    torch.testing.assert_close(prediction, arrays["out/prediction"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("path", MUSICNET, ids=lambda p: p.stem)
def test_the_musicnet_network_equals_the_released_code(path: Path) -> None:
    transcriber, arrays = load_oracle(path)
    assert isinstance(transcriber, TranscriptionModel)
    network = transcriber.network
    assert isinstance(network, StridedNetwork)
    x = arrays["in/x"].float()
    with torch.inference_mode():
        features = network.front_end(x)
        raw = network.raw(x)
        logits = transcriber(x)
        middle = torch.sigmoid(transcriber.calibrate(logits))[:, 0, logits.shape[2] // 2]
    for output, name in [
        (features, "net_in"),
        (raw, "prediction"),
        (logits[:, 0], "transformed_prediction"),
        (middle, "calibrated_result"),
    ]:
        torch.testing.assert_close(output, arrays[f"out/{name}"], atol=1e-4, rtol=0)
