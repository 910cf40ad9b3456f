"""Tests of run folders: initial weights and metrics."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.config import WINDOW, ModelConfig, RSEConfig
from model.storage import WeightsError, save_weights
from model.transcriber import TranscriptionModel
from tests.networks import TINY as TINY_LIVE
from training.loop.run_folder import read_metrics, warm_start, write_metrics

TINY = replace(TINY_LIVE, heads=("frame", "onset", "velocity"))
TINY_PAPER = ModelConfig(rse=RSEConfig(maps=4, blocks=1))
CARD = {
    "name": "before",
    "training": {"steps": 7, "hours": 0.5, "loop": {"learning_rate": 0.1}},
    "data": {"batch_size": 3, "synth": {"a": 1}},
}


def save_network(config: ModelConfig, path: Path) -> TranscriptionModel:
    torch.manual_seed(1)
    network = TranscriptionModel(config).eval()
    for parameter in network.parameters():  # Biases of heads are initially zero.
        parameter.data += 0.05 * torch.randn_like(parameter)
    save_weights(network, {**CARD, "config": config.to_json()}, path)
    return network


@pytest.mark.parametrize("small", [TINY, TINY_PAPER], ids=["filterbank", "strided"])
def test_a_larger_network_starts_with_equal_predictions(small: ModelConfig, tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    small_network = save_network(small, path)
    windows = 0.3 * torch.randn(2, WINDOW)
    expected = small_network.predict(windows)
    heads = ("frame", "offset", "velocity", "onset")
    wider = TranscriptionModel(replace(small, name="wider", heads=heads)).eval()
    stages = warm_start(wider, path)
    stage = {"name": "before", "steps": 7, "batch_size": 3, "hours": 0.5, "learning_rate": 0.1}
    assert stages == [{**stage, "synth": {"a": 1}, "sources": {}}]
    rows = [heads.index(head) for head in small.heads]
    predictions = wider.predict(windows)[:, rows]
    torch.testing.assert_close(predictions, expected[:, : len(rows)], atol=1e-5, rtol=0)


DEEP = replace(TINY, rse=replace(TINY.rse, blocks=3))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(DEEP, rse=replace(DEEP.rse, maps=8)), "another kind"),
        (replace(DEEP, sample_rate=22_050), "another kind"),
        (TINY_PAPER, "another kind"),
        (replace(DEEP, heads=("frame",)), "heads"),
        (TINY, "another kind"),
    ],
)
def test_incompatible_networks_are_rejected(
    config: ModelConfig, message: str, tmp_path: Path
) -> None:
    save_network(DEEP, tmp_path / "deep.safetensors")
    with pytest.raises(WeightsError, match=message):
        warm_start(TranscriptionModel(config), tmp_path / "deep.safetensors")


def test_metrics_skip_repeated_steps_and_incomplete_lines(tmp_path: Path) -> None:
    def write(errors: dict[int, float]) -> None:
        for step, error in errors.items():
            write_metrics(tmp_path, "validation", step, 60, {"error": error})

    write({1: 0.5, 2: 0.4})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "st')  # a full disk cuts a line
    write({2: 0.3, 3: 0.2})
    errors = [(line["step"], line["error"]) for line in read_metrics(tmp_path)]
    assert errors == [(1, 0.5), (2, 0.3), (3, 0.2)]
