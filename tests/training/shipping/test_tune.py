"""The search for the tracker's settings, and what shipping makes of it."""

from pathlib import Path

import pytest

from service.notes.tracker_settings import TrackerSettings
from training.shipping import ship
from training.shipping.tune import GRID, tune, value_of


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
    assert len(tried) < sum(map(len, GRID.values())) * 3


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
