"""The transcription task on a tiny corpus: batches, losses, a run, shipping."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.config import ModelConfig, RSEConfig
from model.storage import load, save_weights
from model.transcriber import TranscriptionModel
from tests.networks import TINY
from training import run
from training.loop.config import LoopConfig
from training.loop.loop import Trainer
from training.music.metrics import FIGURES
from training.music.synth.config import SynthConfig
from training.music_task import MusicConfig, MusicTask
from training.presets import MUSIC_PRESETS
from training.shipping import card as card_page
from training.shipping import ship

PAPER_TINY = ModelConfig(rse=RSEConfig(maps=4, blocks=1))


def music(synth: SynthConfig, model: ModelConfig = TINY) -> MusicConfig:
    return MusicConfig(model=model, synth=synth, batch_size=2, workers=0, validation_windows=48)


@pytest.mark.parametrize("model", [TINY, PAPER_TINY], ids=["filterbank", "strided"])
def test_every_trained_parameter_gets_a_gradient(
    synth_config: SynthConfig, model: ModelConfig
) -> None:
    task = MusicTask(music(synth_config, model))
    loss, parts = task.loss(next(task.batches(seed=1)))
    loss.backward()
    assert all(torch.isfinite(part) for part in parts.values())
    silent = [n for n, p in task.network.named_parameters() if p.requires_grad and p.grad is None]
    assert silent == []
    frozen = {n.split(".")[1] for n, p in task.network.named_parameters() if not p.requires_grad}
    assert frozen == ({"filterbank"} if model is TINY else set())


def test_a_run_from_the_command_line_can_be_resumed_and_shipped(
    synth_config: SynthConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = MUSIC_PRESETS["laptop"]
    small = replace(preset, music=music(synth_config))
    monkeypatch.setitem(MUSIC_PRESETS, "laptop", small)
    out = tmp_path / "run"
    arguments = ["musicnet", "--preset", "laptop", "--out", str(out)]
    assert run.main([*arguments, "--loop.steps", "2"]) == 0
    assert run.main([*arguments, "--loop.steps", "3", "--resume"]) == 0
    card = json.loads((out / "last.json").read_text())
    assert card["training"]["steps"] == 3
    assert 0 <= card["validation"]["ap_200ms"] <= 1

    monkeypatch.delitem(ship.PARTS, "naming")  # of many passages it takes long
    monkeypatch.setattr("training.shipping.tune.GRID", {"min_note_frames": (4, 8)})
    weights = tmp_path / "weights"
    folders = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    folders += ["--windows", "8"]
    status = ship.main(
        [str(out), "--name", "small", "--passages", "1", "--seconds", "2", "--out", str(weights)]
        + folders
    )
    assert status == 0
    shipped = load(weights / "small.safetensors")
    assert shipped.config.name == "small"
    assert shipped.card["tracker"]["min_note_frames"] >= 2
    assert shipped.card["tracker"]["early_odds"]
    page = (weights / card_page.ATTRIBUTIONS).read_text()
    assert "The players of the violin (MIT): violin_one" in page
    figures = {
        "lookahead_ms": 100.0,
        "block_frames": 4,
        "label_shift_ms": 0.0,
        "mean": dict.fromkeys(FIGURES, 0.123),
        "recordings": {"one": {}},
    }
    (tmp_path / "set.json").write_text(json.dumps(figures))
    status = card_page.main([str(weights / "small.safetensors"), f"my set={tmp_path}/set.json"])
    assert status == 0
    page = (weights / "small.md").read_text()
    assert "| my set (1) | 100 ms | 4 frames | 0.123" in page
    assert load(weights / "small.safetensors").card["recordings"]["my set"][0]["count"] == 1
    assert str(synth_config.root) not in page + (weights / "small.json").read_text()


def test_a_run_on_musicnet_alone_is_shipped_without_sources_of_rendered_audio(
    synth_config: SynthConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"batch_size": 2, "archive": "MusicNet", "recordings": 320}
    training = {"steps": 3, "hours": 0.0, "loop": {"learning_rate": 0.001}}
    card = {"config": PAPER_TINY.to_json(), "data": data, "training": training}
    save_weights(TranscriptionModel(PAPER_TINY), card, tmp_path / "best.safetensors")
    grid = {"min_note_frames": (4, 8)}
    monkeypatch.setattr("training.shipping.tune.GRID", grid)
    arguments = [str(tmp_path), "--name", "small", "--passages", "1", "--seconds", "2"]
    folders = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    out = tmp_path / "weights"
    assert ship.main([*arguments, *folders, "--windows", "8", "--out", str(out)]) == 0
    page = (out / "small.md").read_text()
    assert "320 recordings of MusicNet" in page
    assert "players" not in page
    assert card_page.ATTRIBUTIONS not in page
    assert not (out / card_page.ATTRIBUTIONS).exists()


def test_a_validation_during_the_run_is_the_validation_of_what_was_saved(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    task = MusicTask(music(synth_config))
    loop = LoopConfig(steps=6, learning_rate=0.02, bfloat16=False)
    during = Trainer(task, loop, tmp_path).run()
    device = next(task.network.parameters()).device
    after = task.validate(load(tmp_path / "last.safetensors", device, dtype=torch.float32))
    assert during == pytest.approx(after, abs=1e-6)
