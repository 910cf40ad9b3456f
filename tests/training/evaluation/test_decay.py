from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from training.evaluation.decay import TIMES_S, decays, draw, main, pooled
from training.music.metrics import note_list
from training.music.synth.config import SynthConfig


def test_measures_the_fall_after_the_end_of_isolated_notes(tmp_path: Path) -> None:
    time = np.arange(4 * SAMPLE_RATE) / SAMPLE_RATE
    fall = np.where(time < 1, 1, np.exp(-(time - 1) / 0.2))
    audio = (fall * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
    alone = note_list(np.array([[0.0, 1.0, 69, 80], [0.0, 3.5, 64, 80]]))
    curves = decays(audio, alone, SAMPLE_RATE)
    assert list(curves) == [4]  # the other ends too late to be followed
    expected = -8.69 * TIMES_S / 0.2
    np.testing.assert_allclose(curves[4][0][1:], expected[1:], atol=1.0)
    octave_above = note_list(np.array([[0.0, 1.0, 69, 80], [1.2, 1.4, 81, 80]]))
    assert not decays(audio, octave_above, SAMPLE_RATE)
    assert len(pooled([curves, curves, {}])[4]) == 2
    draw({"made": curves}, tmp_path / "decay.png")
    assert (tmp_path / "decay.png").stat().st_size > 1000


def test_command(
    synth_config: SynthConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    options += ["--excerpts", "2", "--out", str(tmp_path / "decay.png")]
    assert main(options) == 0
    assert (tmp_path / "decay.png").exists()
    assert main([*options, "--recordings", str(tmp_path / "none")]) == 1
    assert "not a folder" in capsys.readouterr().err
