"""Scores under named conditions, and the ablation of the material."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from tests.networks import TINY
from training.evaluation import ablation, conditions
from training.music.synth.config import SynthConfig


@pytest.mark.parametrize("name", conditions.CONDITIONS)
def test_a_condition_spoils_the_sound_and_moves_no_onset(name: str) -> None:
    rng = np.random.default_rng(0)
    audio = np.zeros(SAMPLE_RATE, np.float32)
    audio[6000:] = 0.2 * rng.standard_normal(SAMPLE_RATE - 6000)
    out = conditions.CONDITIONS[name](audio, SAMPLE_RATE, np.random.default_rng(1))
    assert out.shape == audio.shape
    assert np.abs(out).max() <= 1
    assert np.array_equal(out, audio) == (name == "clean")
    size = 2 * len(audio)
    likeness = np.fft.irfft(np.conj(np.fft.rfft(audio, size)) * np.fft.rfft(out, size))
    delay = int(np.abs(likeness).argmax())
    assert delay < 0.003 * SAMPLE_RATE


def test_a_table_of_a_network(
    synth_config: SynthConfig, tiny_weights: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folders = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    report = tmp_path / "out.json"
    amount = ["--windows", "4", "--junk-seconds", "0.5", "--json", str(report)]
    assert conditions.main([str(tiny_weights), *folders, *amount]) == 0
    header, _, row = capsys.readouterr().out.splitlines()
    assert header.startswith("| | clean | room |")
    assert row.startswith("| tiny | 0.")
    scores = json.loads(report.read_text())["tiny"]
    assert set(scores) == {*conditions.CONDITIONS, *(f"only {name}" for name in conditions.EMPTY)}


def test_an_ablation_keeps_what_is_finished(
    synth_config: SynthConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(ablation, "SMALL", TINY)
    monkeypatch.setattr(
        ablation, "variants", lambda c: {"without": c, ablation.BY_KEYS: replace(c, labels="keys")}
    )
    arguments = ["--out", str(tmp_path), "--synth", str(synth_config.root)]
    arguments += ["--cache", str(synth_config.cache), "--steps", "2", "--batch-size", "2"]
    arguments += ["--windows", "4", "--junk-seconds", "0.5"]
    assert ablation.main(arguments) == 0
    first = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in first.splitlines()][2:]
    assert rows == ["without", "labels by keys", "labels by keys, scored by keys"]
    (tmp_path / "without" / "last.safetensors").unlink()
    assert ablation.main(arguments) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("main", [ablation.main, lambda where: conditions.main(["live", *where])])
def test_a_folder_without_material_is_a_message_and_a_status(
    main: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--synth", str(tmp_path / "nowhere"), "--cache", str(tmp_path)]) == 1
    assert "nowhere" in capsys.readouterr().err
