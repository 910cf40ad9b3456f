"""Figures drawn from what runs left behind."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from training.evaluation.plots import main
from training.loop.run_folder import MetricsLog, read_metrics


def write_run(folder: Path, errors: dict[int, float], lengths: dict[int, float]) -> None:
    log = MetricsLog(folder, tensorboard=False)
    for step, error in errors.items():
        log.write("train", step, 60.0 * step, {"loss": 2 * error})
        log.write("validation", step, 60.0 * step, {"error": error, "accuracy": 1 - error})
    if lengths:
        scores = [
            {"length": n, "examples": 4, "symbol_accuracy": a, "sequence_accuracy": a / 2}
            for n, a in lengths.items()
        ]
        (folder / "generalisation.json").write_text(json.dumps({"scores": scores}))


def test_pictures_are_drawn_for_what_the_runs_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "rse", {1: 0.5, 2: 0.1, 3: 0.0}, {8: 1.0, 64: 0.99, 512: 0.4})
    write_run(tmp_path / "se", {1: 0.6, 2: 0.4}, {})
    runs = [str(tmp_path / "rse"), f"gated={tmp_path / 'se'}"]
    assert main([*runs, "--out", str(tmp_path / "out")]) == 0
    written = capsys.readouterr().out.split()
    assert [Path(path).name for path in written] == [
        "error.png",
        "generalisation.png",
        "comparison.png",
    ]
    for path in written:
        picture = imread(path)
        assert picture.shape[:2] == (600, 960)
        assert len(np.unique(picture)) > 10  # not blank
    alone = tmp_path / "alone"
    assert main([f"gated={tmp_path / 'se'}", "--out", str(alone)]) == 0
    assert [path.name for path in alone.iterdir()] == ["error.png"]


def test_steps_written_twice_count_once_and_half_a_line_is_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path, {1: 0.5, 2: 0.4}, {})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "st')  # as a full disk leaves it
    write_run(tmp_path, {2: 0.3, 3: 0.2}, {})
    lines = [line for line in read_metrics(tmp_path) if line["kind"] == "validation"]
    assert [(line["step"], line["error"]) for line in lines] == [(1, 0.5), (2, 0.3), (3, 0.2)]
