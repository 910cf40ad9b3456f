"""Tests of the plots of training runs."""

from pathlib import Path

import pytest

from training.evaluation.plots import main
from training.loop.run_folder import write_metrics


def test_every_run_has_its_own_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [tmp_path / name for name in ("a/seed-1", "a/seed-2", "b/seed-1")]
    for run in runs:
        write_metrics(run, "validation", 1, 60, {"error": 0.5})
    out = ["--out", str(tmp_path / "figures")]
    assert main([*map(str, runs[:2]), *out]) == 0
    assert (tmp_path / "figures" / "error.png").is_file()
    with pytest.raises(SystemExit, match="2"):
        main([*map(str, runs), *out])
    assert "must have different names" in capsys.readouterr().err
