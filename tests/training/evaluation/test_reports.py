"""Means, intervals, breakdowns and pictures of figures that are given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.container import ErrorbarContainer

from training.evaluation.reports.delays import main, plot, read_reports
from training.evaluation.reports.report import (
    OCTAVES,
    POLYPHONY,
    Counts,
    Result,
    breakdowns,
    interval,
    pooled_figures,
    report,
    tables,
)
from training.music.metrics import (
    FIGURES,
    NoteList,
    frame_average_precision,
    frame_f1,
    matched_onsets,
    note_list,
)


def result(value: float, **more: float) -> Result:
    return Result({figure: value for figure in FIGURES} | more, np.array([0.01, 0.02, 0.03]))


def test_an_interval_holds_the_mean() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 1000).tolist()
    low, high = interval(values) or (0.0, 0.0)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(1000), rel=0.2)
    assert interval([0.3]) is interval([0.3, float("nan")]) is None


def test_a_figure_that_some_recordings_lack() -> None:
    made = report(
        {"a": result(0.2, onset_velocity_f1=0.9), "b": result(0.4), "c": result(float("nan"))}
    )
    assert made["mean"]["frame_ap"] == pytest.approx(0.3)
    assert made["mean"]["onset_velocity_f1"] == 0.9
    assert made["interval"]["onset_velocity_f1"] is None
    assert made["recordings"]["c"]["frame_ap"] is None
    assert "onset_velocity_f1" not in made["recordings"]["b"]
    assert made["onset_error_ms"]["median"] == pytest.approx(20)
    assert made["onset_error_ms"]["quartiles"] == pytest.approx([10, 30])
    json.dumps(made, allow_nan=False)
    printed = tables(made)
    assert "0.300" in printed
    assert "+20.0 ms in the median" in printed


FRAME_S = 0.01


def notes(rows: list[tuple[float, float, int]]) -> NoteList:
    return note_list(np.array([(*row, 80) for row in rows]))


def random_notes(rng: np.random.Generator, count: int) -> NoteList:
    onset = rng.uniform(0, 0.9, count)
    length = rng.uniform(0.02, 0.2, count)
    pitch = rng.integers(30, 80, count)
    return note_list(np.stack([onset, onset + length, pitch, np.full(count, 80)], axis=1))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_groups_add_up_to_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reference, estimated = random_notes(rng, 12), random_notes(rng, 9)
    probabilities = (rng.integers(0, 11, (100, 128)) / 10).astype(np.float32)
    matched = matched_onsets(reference, estimated)
    label, drawn = reference.roll(100, FRAME_S), estimated.roll(100, FRAME_S)
    found = breakdowns(reference, estimated, matched, probabilities, FRAME_S)
    for names, groups in zip((OCTAVES, POLYPHONY), found, strict=True):
        assert groups is not None
        assert groups.notes.sum() == len(reference)
        assert groups.estimated.sum() == len(estimated)
        assert groups.matched.sum() == len(matched)
        twice = pooled_figures(names, [groups, groups])
        assert sum(figures["notes"] for figures in twice.values()) == 2 * len(reference)
        total = Counts(*(column.sum(axis=0, keepdims=True) for column in groups))
        of_all = pooled_figures(("all",), [total])["all"]
        assert of_all["frame_f1"] == pytest.approx(frame_f1(drawn, label))


def test_an_octave_counts_its_own_notes() -> None:
    reference = notes([(0.1, 0.5, 60), (0.2, 0.6, 71), (0.2, 0.6, 72)])
    estimated = notes([(0.1, 0.5, 60), (0.2, 0.6, 72), (0.7, 0.8, 72)])
    probabilities = estimated.roll(100, FRAME_S).astype(np.float32)
    matched = matched_onsets(reference, estimated)
    counts, _ = breakdowns(reference, estimated, matched, probabilities, FRAME_S)
    groups = pooled_figures(OCTAVES, [counts])
    assert list(groups) == ["C4 to B4", "C5 to B5"]
    low, high = groups.values()
    assert (low["onset_recall"], low["onset_precision"]) == (0.5, 1.0)
    assert (high["onset_recall"], high["onset_precision"]) == (1.0, 0.5)
    octave = slice(60, 72)
    label = reference.roll(100, FRAME_S)[:, octave]
    assert low["frame_ap"] == pytest.approx(
        frame_average_precision(probabilities[:, octave], label), abs=1e-6
    )


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
