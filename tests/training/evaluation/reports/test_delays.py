"""The picture of accuracy against delay, from what ``training.evaluate real`` writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from training.evaluation.reports.delays import main, plot, read_reports


def a_report(mode: str, block: int, lookahead_ms: float, f1: float, ms: float) -> dict[str, Any]:
    mean = {"onset_f1": f1, "note_on_delay_ms_p50": ms, "note_on_delay_ms_p95": ms + 40}
    return {
        "model": "live",
        "mode": mode,
        "block_frames": block,
        "lookahead_ms": lookahead_ms,
        "label_shift_ms": 10.0,
        "recordings": {"one": mean, "two": mean},
        "mean": mean,
    }


def written(path: Path, reports: list[dict[str, Any]]) -> str:
    content = {**reports[0], **({"by_lookahead": reports} if len(reports) > 1 else {})}
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    fixed = [a_report("block", 4, ms, 0.7 + ms / 2000, ms + 40) for ms in (50, 100, 200, 370)]
    single = [a_report("block", 1, ms, 0.7 + ms / 2000, ms + 20) for ms in (50, 100)]
    anytime = [a_report("anytime", 2, 200, 0.79, 43)]
    return [
        written(tmp_path / f"{name}.json", reports)
        for name, reports in (("fixed", fixed), ("single", single), ("anytime", anytime))
    ]


def test_a_line_for_each_way_of_streaming(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figures" / "delay.png"
    axes = plot(read_reports(map(Path, files)), out)
    drawn = {
        bars.get_label(): np.asarray(bars.lines[0].get_xydata()).tolist()
        for bars in axes.containers
        if isinstance(bars, ErrorbarContainer)
    }
    assert drawn.keys() == {
        "anytime, blocks of 2 frames",
        "fixed look-ahead, blocks of 1 frame",
        "fixed look-ahead, blocks of 4 frames",
    }
    assert drawn["anytime, blocks of 2 frames"] == [[43, 0.79]]
    assert len(drawn["fixed look-ahead, blocks of 4 frames"]) == 4
    assert out.stat().st_size > 1000


def test_what_does_not_belong_together_is_refused(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = a_report("block", 4, 100, 0.7, 140) | {"model": "accurate"}
    out = str(tmp_path / "delay.png")
    assert main([*files, written(tmp_path / "other.json", [other]), "--out", out]) == 1
    assert "other weights" in capsys.readouterr().err
    (tmp_path / "junk.json").write_text(json.dumps({"mean": {}}))
    assert main([str(tmp_path / "junk.json"), "--out", out]) == 1
    assert "no delays" in capsys.readouterr().err
