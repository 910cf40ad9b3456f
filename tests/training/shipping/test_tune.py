"""The search for the tracker's settings, and what shipping makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HOP, SAMPLE_RATE
from service.notes.tracker_settings import TrackerSettings
from training.music.synth.config import SynthConfig
from training.shipping import ship
from training.shipping.pieces import Pieces
from training.shipping.tune import GRID, MAX_CORRECTION, correction_frames, tune, value_of

FRAME_S = HOP / SAMPLE_RATE


def test_the_top_is_found_though_settings_lean_on_each_other() -> None:
    tried = []

    def height(s: TrackerSettings, knob: str) -> float:
        tried.append(s)
        if knob == "end_biases.brass":  # what else it depends on does not matter here
            return -abs(value_of(s, knob) - 1.5)
        return -(
            abs(s.onset_threshold - 0.15)
            + abs(s.frame_on_threshold - s.onset_threshold - 0.3)
            + abs(value_of(s, "end_biases.brass") - 1.5)
            + abs(s.min_note_frames - 3) / 20
        )

    found = tune(height, TrackerSettings(), GRID)
    assert found.onset_threshold == pytest.approx(0.15)
    assert found.frame_on_threshold == pytest.approx(0.45)
    assert found.min_note_frames == 3
    assert value_of(found, "end_biases.brass") == 1.5
    assert found.onset_radius_frames == TrackerSettings().onset_radius_frames
    assert len(tried) < sum(map(len, GRID.values())) * 3


def test_the_timing_of_the_families_is_levelled() -> None:
    class Late(Pieces):
        def __init__(self, *late_s: float) -> None:
            self._late_s = late_s

        def onset_errors_s(self, settings: TrackerSettings) -> list[NDArray[np.float64]]:
            correction_s = settings.onset_correction_frames * FRAME_S
            return [np.array([-0.5, late, 0.5]) + correction_s for late in self._late_s]

    settings = TrackerSettings(onset_correction_frames=0.3)
    early = correction_frames(Late(0.1 * FRAME_S, -0.5 * FRAME_S), settings)
    assert early == pytest.approx(0.2)
    assert correction_frames(Late(-2 * FRAME_S), settings) == MAX_CORRECTION


def test_settings_are_chosen_again_for_weights_that_are_there(
    tiny_weights: Path, synth_config: SynthConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[dict[str, Any]] = []
    monkeypatch.setattr("training.shipping.tune.tune", lambda *_: TrackerSettings(end_bias=0.45))
    monkeypatch.setattr("training.shipping.ship.write_card", lambda _, card: written.append(card))
    where = ["--synth", str(synth_config.root), "--cache", str(synth_config.cache)]
    where += ["--out", str(tiny_weights.parent), "--passages", "1", "--seconds", "4"]
    assert ship.main(["--name", tiny_weights.stem, "--parts", "tune", *where]) == 0
    assert written[0]["tracker"]["end_bias"] == 0.45
    assert written[0]["config"]
    assert ship.main(["--name", "none", "--parts", "tune", *where]) == 1


def test_shipping_says_what_it_lacks_and_writes_nothing(
    tiny_weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    arguments = [str(run), "--name", "mine", "--synth", str(tmp_path / "none"), "--out", str(out)]
    assert ship.main(arguments) == 1
    assert "no weights" in capsys.readouterr().err
    run.mkdir()
    for suffix in (".safetensors", ".json"):
        source = tiny_weights.with_suffix(suffix)
        (run / "best").with_suffix(suffix).write_bytes(source.read_bytes())
    assert ship.main(arguments) == 1
    assert "bank_index.json" in capsys.readouterr().err
    assert not out.exists()
