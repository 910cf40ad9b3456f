"""Tests of the plots of training runs."""

from pathlib import Path

from tests.commands import run
from training.evaluation.plots import main
from training.loop.run_folder import write_metrics


def test_every_run_has_its_own_line(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("a/seed-1", "a/seed-2", "b/seed-1")]
    for folder in runs:
        write_metrics(folder, "validation", 1, 60, {"error": 0.5})
    out = tmp_path / "figures"
    assert run(main, *runs[:2], "--out", out).status == 0
    assert (out / "error.png").is_file()
    status, _, error = run(main, *runs, "--out", out)
    assert status == 2
    assert "must have different names" in error
