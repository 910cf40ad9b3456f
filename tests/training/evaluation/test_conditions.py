"""Scores under named conditions."""

import json
from pathlib import Path

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from training.evaluation import conditions
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
    assert row.startswith(f"| {tiny_weights} | 0.")
    scores = json.loads(report.read_text())[str(tiny_weights)]
    assert set(scores) == {*conditions.CONDITIONS, *(f"only {name}" for name in conditions.EMPTY)}
