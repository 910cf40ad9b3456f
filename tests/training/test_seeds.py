"""Several seeds of one training command."""

import json
from pathlib import Path

import pytest

from tests.training.test_run import TINY
from training.seeds import main, summary


def test_summary_is_of_the_sample() -> None:
    row = summary([{"accuracy": 0.5}, {"accuracy": 0.7}])["accuracy"]
    assert row == pytest.approx({"mean": 0.6, "deviation": 0.02**0.5, "min": 0.5, "max": 0.7})


def test_seeds_train_different_networks_and_report_their_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["2", "--out", str(tmp_path), *TINY]) == 0
    first, second = ((tmp_path / f"seed-{n}/last.safetensors").read_bytes() for n in (1, 2))
    assert first != second
    assert "| accuracy |" in capsys.readouterr().out
    report = json.loads((tmp_path / "seeds.json").read_text())
    assert report["seeds"] == 2
    assert main(["2", "--out", str(tmp_path), *TINY]) == 0  # finished runs are kept
    assert json.loads((tmp_path / "seeds.json").read_text()) == report
