"""Tests of the command that repeats a training with several seeds."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run
from tests.training.test_run import TINY
from training.algorithmic.task import AlgorithmicTask
from training.seeds import main, summary


def test_the_summary_has_the_sample_deviation() -> None:
    row = summary([{"accuracy": 0.5}, {"accuracy": 0.7}])["accuracy"]
    assert row == pytest.approx({"mean": 0.6, "deviation": 0.02**0.5, "min": 0.5, "max": 0.7})


def test_seeds_train_different_networks(tmp_path: Path) -> None:
    status, printed, _ = run(main, 2, "--out", tmp_path, *TINY)
    assert status == 0
    first, second = ((tmp_path / f"seed-{n}/last.safetensors").read_bytes() for n in (1, 2))
    assert first != second
    assert "| accuracy |" in printed
    report = json.loads((tmp_path / "seeds.json").read_text())
    assert report["seeds"] == 2
    assert run(main, 2, "--out", tmp_path, *TINY).status == 0  # Finished runs are not repeated.
    assert json.loads((tmp_path / "seeds.json").read_text()) == report


def test_an_unfinished_run_stops_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedTask(AlgorithmicTask):
        def loss(self, batch: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return super().loss(batch)

    arguments = 2, "--out", tmp_path, *TINY, "--loop.steps", 2
    status, _, error = run(main, *arguments, "--loop.max-minutes", "1e-9")
    assert status == 1
    assert "stopped at step 1 of 2" in error
    with monkeypatch.context() as patch:
        patch.setattr("training.presets.AlgorithmicTask", InterruptedTask)
        status, _, error = run(main, *arguments)  # The last step is trained, but not validated.
    assert status == 130
    assert "interrupted and saved" in error
    assert [path.name for path in tmp_path.iterdir()] == ["seed-1"]
    assert run(main, *arguments).status == 0
    assert (tmp_path / "seeds.json").exists()
