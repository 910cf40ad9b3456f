"""Tests of evaluation and training on a small MusicNet archive."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from model.config import HOP, WINDOW
from model.storage import load, read_card
from tests.commands import run as run_command
from tests.training.musicnet.conftest import scale
from training import evaluate, run
from training.music.metrics import FIGURES
from training.musicnet.layout import find
from training.musicnet.stand_in import HEADER
from training.musicnet.windows import open_tracks


def test_the_paper_metric_uses_the_middle_frames(
    archive: Path, tmp_path: Path, tiny_weights: Path
) -> None:
    out = tmp_path / "out.json"
    options = "--model", tiny_weights, "--json", out, "--stride", 1280, "--jobs", 1
    status, printed, _ = run_command(evaluate.main, "musicnet", "--data-dir", archive, *options)
    assert status == 0
    report = json.loads(out.read_text())
    assert set(report["mean"]) == {*FIGURES}
    assert set(report["recordings"]) == {"2303", "1819"}

    rate, transcriber = 11_025, load(tiny_weights, dtype=torch.float32)
    predicted, truth = [], []
    for number in (2303, 1819):
        (track,) = open_tracks([find(archive)[number]], rate, archive / "again")
        for start in range(rate, len(track.audio) - WINDOW + 1, 10 * HOP):
            audio = track.audio[start - transcriber.config.context : start + WINDOW]
            window = torch.from_numpy(np.array(audio))
            predicted.append(transcriber.predict(window[None])[0, 0, 31].numpy())
            middle = start + WINDOW // 2
            sounding = {note for on, off, note in scale(number) if on // 4 <= middle < off // 4}
            truth.append([note in sounding for note in range(128)])
    expected = average_precision_score(np.ravel(truth), np.ravel(predicted))
    assert report["paper"]["average_precision"] == pytest.approx(expected, rel=1e-3)
    assert report["paper"]["windows"] == len(predicted)
    figure = report["paper"]["average_precision"]
    assert f"average precision of middle frames: {figure:.4f}" in printed


def arguments(archive: Path, out: Path) -> list[str]:
    """Return the arguments of a short run of the paper's preset with a small network."""
    options = """--music.model.rse.maps 4 --music.model.rse.blocks 1 --music.batch-size 2
        --music.workers 1 --music.validation-windows 6 --loop.steps 4 --loop.bfloat16 False"""
    paths = ["--data-dir", str(archive), "--out", str(out)]
    return ["musicnet", "--preset", "paper", *paths, *options.split()]


def test_the_paper_preset_trains_on_the_archive(
    archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run.main(arguments(archive, tmp_path / "once")) == 0
    assert "lacks the recordings [2384, 2514, 2567, 1876, 2382]" in caplog.text
    card = read_card(tmp_path / "once" / "best.safetensors")
    assert 0 < card["validation"]["ap_middle"] <= 1
    assert card["data"]["test"] == [2303, 1819]
    assert card["config"]["sample_rate"] == 11_000
    assert len(list((archive / "resampled-11000").glob("*.npy"))) == 5  # 3 train, 2 validation


def test_invalid_archives_cause_an_error_message(archive: Path, tmp_path: Path) -> None:
    status, _, error = run_command(run.main, *arguments(tmp_path, tmp_path / "run"))
    assert status == 1
    assert "is not the MusicNet archive" in error
    assert "training/PAPER" in error
    (archive / "train_labels" / "1728.csv").write_text(f"{HEADER}\n0,99999999,1,60,0,1,Quarter\n")
    status, _, error = run_command(run.main, *arguments(archive, tmp_path / "run"))
    assert status == 1
    assert "does not belong to" in error
    assert not list((tmp_path / "run").glob("*.safetensors"))
