"""Tests of the transcription task on a small corpus: gradients, a run and shipping."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from model.config import SAMPLE_RATE, WINDOW, ModelConfig, RSEConfig
from model.storage import load, save_weights
from model.transcriber import TranscriptionModel
from tests.networks import TINY
from training import run
from training.music.families import validation_passages
from training.music.losses import DistillationConfig
from training.music.synth.config import SynthConfig
from training.music_task import MusicConfig, MusicTask
from training.presets import MUSIC_PRESETS
from training.shipping import card as card_page
from training.shipping import ship

PAPER_TINY = ModelConfig(sample_rate=SAMPLE_RATE, rse=RSEConfig(maps=4, blocks=1))
FRAME_ONLY = replace(TINY, heads=("frame",))


def music(synth: SynthConfig, model: ModelConfig = TINY) -> MusicConfig:
    return MusicConfig(model=model, synth=synth, batch_size=2, workers=0, family_passages=1)


@pytest.mark.parametrize(
    "model", [TINY, FRAME_ONLY, PAPER_TINY], ids=["filterbank", "frame head", "strided"]
)
def test_every_trainable_parameter_has_a_gradient(
    synth_config: SynthConfig, model: ModelConfig
) -> None:
    task = MusicTask(music(synth_config, model))
    loss, parts = task.loss(next(task.batches(seed=1)))
    loss.backward()
    assert all(torch.isfinite(part) for part in parts.values())
    parameters = list(task.network.named_parameters())
    assert [name for name, p in parameters if p.requires_grad and p.grad is None] == []
    frozen = {name.split(".")[1] for name, p in parameters if not p.requires_grad}
    assert frozen == (set() if model is PAPER_TINY else {"filterbank"})


def test_networks_whose_loss_has_no_masks_reject_uncertain_labels(
    synth_config: SynthConfig, tmp_path: Path
) -> None:
    with_recordings = replace(synth_config, real_root=tmp_path)
    MusicTask(music(with_recordings, FRAME_ONLY))
    with pytest.raises(ValueError, match="leave out --music.synth.real-root"):
        MusicTask(music(with_recordings, PAPER_TINY))


@pytest.mark.parametrize("model", [TINY, PAPER_TINY], ids=["filterbank", "strided"])
def test_every_network_learns_from_its_teacher(
    synth_config: SynthConfig, model: ModelConfig, tmp_path: Path
) -> None:
    teacher = tmp_path / "teacher.safetensors"
    save_weights(TranscriptionModel(model), {"config": model.to_json()}, teacher)
    task = MusicTask(
        replace(music(synth_config, model), distillation=DistillationConfig(str(teacher)))
    )
    batch = next(task.batches(seed=1))
    task.network.eval()
    taught, _ = task.loss(batch)
    task.teacher = None
    alone, _ = task.loss(batch)
    assert taught.item() != pytest.approx(alone.item(), rel=1e-3)


@pytest.mark.parametrize("model", [TINY, PAPER_TINY])
def test_rendered_audio_needs_a_network_at_its_rate(
    synth_config: SynthConfig, model: ModelConfig
) -> None:
    with pytest.raises(ValueError, match="16000 Hz, but rendered audio is at 11025 Hz"):
        MusicTask(music(synth_config, replace(model, sample_rate=16_000)))


def test_a_run_can_be_initialised_resumed_and_shipped(
    synth_config: SynthConfig, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By default, shipping measures 8 passages of 12 s per family.
    one_second = partial(validation_passages, count=1, seconds=1.0)
    monkeypatch.setattr(
        "training.music_task.validation_passages", lambda synth, _: one_second(synth)
    )
    preset = MUSIC_PRESETS["live"]
    small = replace(preset, music=music(synth_config), init=str(tiny_weights))
    monkeypatch.setitem(MUSIC_PRESETS, "live", small)
    out = tmp_path / "run"
    arguments = ["musicnet", "--preset", "live", "--out", str(out)]
    assert run.main([*arguments, "--loop.steps", "1", "--loop.learning-rate", "1e-9"]) == 0
    # With this learning rate, only the statistics of the batch normalisation change.
    windows = 0.3 * torch.randn(2, WINDOW)
    after, before = (load(p, dtype=torch.float32) for p in (out / "last.safetensors", tiny_weights))
    assert (after.predict(windows) - before.predict(windows)).abs().max() < 0.2
    assert run.main([*arguments, "--loop.steps", "3", "--resume"]) == 0
    card = json.loads((out / "last.json").read_text())
    assert card["training"]["steps"] == 3
    assert [stage["steps"] for stage in card["training"]["earlier"]] == [7]
    assert 0 <= card["validation"]["ap_200ms"] <= 1
    assert "context" not in card["data"]["synth"]  # a property of the network

    monkeypatch.setattr("training.shipping.tune.GRID", {"min_note_frames": (4, 8)})
    monkeypatch.setattr("training.shipping.tune.NAMING_GRID", {"belief_trust": (0.5, 1.0)})
    weights = tmp_path / "weights"
    monkeypatch.setattr(ship, "CACHE", synth_config.cache)
    parts = {name: (part, 1, 1.0) for name, (part, _, _) in ship.PARTS.items()}
    monkeypatch.setattr(ship, "PARTS", parts)
    options = ["--synth", str(synth_config.root), "--out", str(weights), "--name", "small"]
    assert ship.main([str(out), *options, "--parts", "tune", "early"]) == 0
    assert ship.main([*options, "--parts", "tune"]) == 0
    assert ship.main([*options, "--parts", "tune", "--name", "none"]) == 1
    shipped = load(weights / "small.safetensors")
    assert shipped.config.name == "small"
    assert shipped.card["tracker"]["min_note_frames"] >= 2
    page = (weights / card_page.ATTRIBUTIONS).read_text()
    assert "The players of the violin (MIT): violin_one" in page
    assert "A flautist (CC0): flute" in page  # a source of the initial weights
    page += (weights / "small.md").read_text()
    assert str(synth_config.root) not in page + (weights / "small.json").read_text()
