"""Tests of the command that repeats a training with several seeds."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run
from tests.training.test_run import TINY
from training.algorithmic.task import AlgorithmicTask
from training.seeds import final_metrics, main, summary


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


def test_runs_with_other_options_are_not_counted(tmp_path: Path) -> None:
    rate = "--loop.learning-rate", "0.01"
    assert run(main, 1, "--out", tmp_path, *TINY, *rate).status == 0
    report = (tmp_path / "seeds.json").read_bytes()
    for options in ((), ("--loop.learning-rate", "9")):
        status, _, error = run(main, 1, "--out", tmp_path, *TINY, *options)
        assert status == 1
        assert "other options: loop.learning_rate from 0.01 to" in error
    assert (tmp_path / "seeds.json").read_bytes() == report


@pytest.mark.parametrize("steps", [3, 5])
def test_a_run_of_another_length_is_not_counted(tmp_path: Path, steps: int) -> None:
    assert run(main, 1, "--out", tmp_path, *TINY).status == 0
    path = tmp_path / "seed-1" / "last.json"
    card = json.loads(path.read_text())
    card["training"]["loop"]["steps"] = steps
    path.write_text(json.dumps(card))
    with pytest.raises(ValueError, match="stopped at step 4"):
        final_metrics(tmp_path / "seed-1")


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
