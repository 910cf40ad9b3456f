"""Tests of the evaluation of recordings: figures, means and confidence intervals."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.protocol.options import Mode, StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.paths import REPOSITORY
from training.evaluation.real import Report, Result, evaluate_collection, interval, report, table
from training.music.metrics import FIGURES
from training.music.recordings import Collection, read_collection


def evaluate(folder: Path, *options: StreamOptions) -> list[Report]:
    return evaluate_collection(read_collection(folder), FakeTranscriber, list(options), 0.0)


def test_a_transcription_is_scored(tones: Path) -> None:
    (tones_report,) = evaluate(tones, StreamOptions())
    assert tones_report["recordings"].keys() == {"tones"}
    assert tones_report["mean"] == pytest.approx(tones_report["recordings"]["tones"])
    for figure in FIGURES:
        assert tones_report["mean"][figure] > 0.9, figure
    assert abs(tones_report["onset_error_ms"]["median"]) < 15
    assert tones_report["interval"]["onset_f1"] is None  # needs two recordings


def test_note_on_delays_depend_on_the_stream_options(tones: Path) -> None:
    fixed = StreamOptions(lookahead_ms=200, block_frames=1)
    anytime = StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200)
    fixed_report, anytime_report = evaluate(tones, fixed, anytime)
    # 17 hops of look-ahead and 2 hops to detect a peak, with half a frame of tolerance.
    assert fixed_report["mean"]["note_on_delay_ms_p50"] == pytest.approx(220, abs=12)
    assert anytime_report["mode"] == "anytime"
    mean = anytime_report["mean"]
    assert 0 < mean["note_on_delay_ms_p50"] < 60
    assert mean["note_on_delay_ms_p50"] <= mean["note_on_delay_ms_p95"] < 210
    assert mean["onset_f1"] > 0.9


def test_reports_name_the_actual_look_ahead(
    tones: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (report_700,) = evaluate(tones, StreamOptions(lookahead_ms=700))
    assert report_700["lookahead_ms"] == pytest.approx(371.5, abs=0.1)
    assert "700" not in (printed := capsys.readouterr().out)
    assert "372 ms" in printed


def test_unreadable_recordings_are_reported_and_the_others_scored(
    tones: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = (tones / "tones.tsv").read_bytes()
    (tones / "broken.wav").write_bytes(b"RIFF no music")  # invalid header
    samples = np.zeros(FAKE_RATE_HZ, np.float32)
    samples[1000] = np.nan  # detected during the transcription
    soundfile.write(tones / "spoilt.wav", samples, FAKE_RATE_HZ, subtype="FLOAT")
    for name in ("short", "orphan", "garbled"):
        (tones / f"{name}.wav").write_bytes((tones / "tones.wav").read_bytes())
    (tones / "broken.tsv").write_bytes(labels)
    (tones / "spoilt.tsv").write_text("0.1\t0.2\t60\t64")
    (tones / "short.tsv").write_text("9182\t90782\t60\t64")
    (tones / "garbled.tsv").write_text("la la la")
    valid = Collection("tones", read_collection(tones).recordings[-1:], {})
    (expected,) = evaluate_collection(valid, FakeTranscriber, [StreamOptions()], 0.0)
    (complete_report,) = evaluate(tones, StreamOptions())
    printed = capsys.readouterr().out
    failures = complete_report["failures"]
    assert sorted(failures) == ["broken", "garbled", "short", "spoilt"]
    assert re.search(r"cannot read .*broken\.wav", failures["broken"])
    assert re.search(r"garbled\.tsv:1", failures["garbled"])
    assert complete_report["unlabelled"] == [str(tones / "orphan.wav")]
    assert re.search("most labels .* in seconds", failures["short"])
    assert re.search(r"spoilt\.wav: sample 1000 is nan", failures["spoilt"])
    assert all(f"not scored: {reason}" in printed for reason in failures.values())
    assert complete_report["recordings"] == expected["recordings"]
    assert complete_report["mean"] == expected["mean"]


def result(value: float, **figures: float) -> Result:
    return Result(dict.fromkeys(FIGURES, value) | figures, np.array([0.01, 0.02, 0.03]))


def test_the_interval_contains_the_mean() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 1000).tolist()
    low, high = interval(values) or (0.0, 0.0)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(1000), rel=0.2)
    assert interval([0.3]) is None


def test_means_omit_recordings_without_the_figure() -> None:
    combined = report(
        {
            "a": result(0.2, onset_velocity_f1=0.9),
            "b": result(0.4),
            "c": Result({"onset_f1": 0.0}, np.zeros(0)),
        }
    )
    assert combined["mean"]["frame_ap"] == pytest.approx(0.3)
    assert combined["mean"]["onset_velocity_f1"] == 0.9
    assert combined["interval"]["onset_velocity_f1"] is None
    assert "frame_ap" not in combined["recordings"]["c"]
    assert "onset_velocity_f1" not in combined["recordings"]["b"]
    assert combined["onset_error_ms"]["median"] == pytest.approx(20)
    assert combined["onset_error_ms"]["quartiles"] == pytest.approx([12.5, 27.5])
    json.dumps(combined, allow_nan=False)
    printed = table(combined)
    assert "0.300" in printed
    assert "+20.0 ms in the median" in printed


KILLED = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from training.evaluation.real import initialise_worker

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), initialise_worker, (1,))
    pool.submit(os.getpid).result()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.timeout(60)
def test_workers_of_a_killed_evaluation_exit(tmp_path: Path) -> None:
    """The worker holds the program's output open, so `run` returns once both have exited."""
    (tmp_path / "killed.py").write_text(KILLED)
    program = [sys.executable, str(tmp_path / "killed.py")]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    killed = subprocess.run(program, capture_output=True, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
