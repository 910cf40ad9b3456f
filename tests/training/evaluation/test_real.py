"""Scores of recordings through the service's pipeline; means and intervals of figures."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from service.protocol.options import Mode, StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from training.evaluation.real import Report, Result, evaluate_collection, interval, report, table
from training.music.metrics import FIGURES
from training.music.recordings import Collection, read_collection


def evaluate(folder: Path, *args: Any, **choices: Any) -> list[Report]:
    return evaluate_collection(read_collection(folder), *args, **choices)


def test_a_transcription_is_scored(tones: Path) -> None:
    (found,) = evaluate(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert found["recordings"].keys() == {"tones"}
    assert found["mean"] == pytest.approx(found["recordings"]["tones"])
    for figure in FIGURES:
        assert found["mean"][figure] > 0.9, figure
    assert abs(found["onset_error_ms"]["median"]) < 15
    assert found["interval"]["onset_f1"] is None  # needs two recordings


def test_note_on_delays_depend_on_the_stream_options(tones: Path) -> None:
    fixed = StreamOptions(lookahead_ms=200, block_frames=1)
    anytime = StreamOptions(mode=Mode.ANYTIME, lookahead_ms=200)
    streams = [fixed, anytime]
    of_fixed, of_anytime = evaluate(tones, FakeTranscriber, streams, label_shift_s=0.0)
    # 17 hops of look-ahead, two to see a peak, and half a frame either way
    assert of_fixed["mean"]["note_on_delay_ms_p50"] == pytest.approx(220, abs=12)
    assert of_anytime["mode"] == "anytime"
    assert 0 < of_anytime["mean"]["note_on_delay_ms_p50"] < 60
    p95 = of_anytime["mean"]["note_on_delay_ms_p95"]
    assert of_anytime["mean"]["note_on_delay_ms_p50"] <= p95 < 210
    assert of_anytime["mean"]["onset_f1"] > 0.9


def test_unreadable_recordings_are_reported_and_the_others_scored(
    tones: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = (tones / "tones.tsv").read_bytes()
    (tones / "broken.wav").write_bytes(b"RIFF no music")  # fails when the header is read
    spoilt = np.zeros(FAKE_RATE_HZ, np.float32)
    spoilt[1000] = np.nan  # fails when it is transcribed
    soundfile.write(tones / "spoilt.wav", spoilt, FAKE_RATE_HZ, subtype="FLOAT")
    for name in ("short", "orphan", "garbled"):
        (tones / f"{name}.wav").write_bytes((tones / "tones.wav").read_bytes())
    (tones / "broken.tsv").write_bytes(labels)
    (tones / "spoilt.tsv").write_text("0.1\t0.2\t60\t64")
    (tones / "short.tsv").write_text("9182\t90782\t60\t64")
    (tones / "garbled.tsv").write_text("la la la")
    (alone,) = evaluate_collection(
        Collection("tones", read_collection(tones).recordings[-1:], {}),
        FakeTranscriber,
        [StreamOptions()],
        0.0,
    )
    (found,) = evaluate(tones, FakeTranscriber, [StreamOptions()], 0.0)
    shown = capsys.readouterr().out
    failures = found["failures"]
    assert sorted(failures) == ["broken", "garbled", "short", "spoilt"]
    assert re.search(r"cannot read .*broken\.wav", failures["broken"])
    assert re.search(r"garbled\.tsv:1", failures["garbled"])
    assert found["unlabelled"] == [str(tones / "orphan.wav")]
    assert re.search("most labels .* in seconds", failures["short"])
    assert re.search(r"spoilt\.wav: sample 1000 is nan", failures["spoilt"])
    assert all(f"not scored: {reason}" in shown for reason in failures.values())
    assert found["recordings"] == alone["recordings"]
    assert found["mean"] == alone["mean"]


def result(value: float, **more: float) -> Result:
    return Result({figure: value for figure in FIGURES} | more, np.array([0.01, 0.02, 0.03]))


def test_the_interval_contains_the_mean() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 1000).tolist()
    low, high = interval(values) or (0.0, 0.0)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(1000), rel=0.2)
    assert interval([0.3]) is None


def test_means_leave_out_recordings_without_the_figure() -> None:
    made = report(
        {
            "a": result(0.2, onset_velocity_f1=0.9),
            "b": result(0.4),
            "c": Result({"onset_f1": 0.0}, np.zeros(0)),
        }
    )
    assert made["mean"]["frame_ap"] == pytest.approx(0.3)
    assert made["mean"]["onset_velocity_f1"] == 0.9
    assert made["interval"]["onset_velocity_f1"] is None
    assert "frame_ap" not in made["recordings"]["c"]
    assert "onset_velocity_f1" not in made["recordings"]["b"]
    assert made["onset_error_ms"]["median"] == pytest.approx(20)
    assert made["onset_error_ms"]["quartiles"] == pytest.approx([12.5, 27.5])
    json.dumps(made, allow_nan=False)
    printed = table(made)
    assert "0.300" in printed
    assert "+20.0 ms in the median" in printed
