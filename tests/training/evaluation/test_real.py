"""Recordings through the service's pipeline, scored."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from service.protocol.options import Mode, StreamOptions
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from training.evaluation.real import Report, evaluate_collection
from training.music.metrics import FIGURES
from training.music.recordings import Collection, read_collection


def evaluate(folder: Path, *args: Any, **choices: Any) -> list[Report]:
    return evaluate_collection(read_collection(folder), *args, **choices)


def test_a_transcription_is_scored(tones: Path) -> None:
    (report,) = evaluate(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert report["recordings"].keys() == {"tones"}
    assert report["mean"] == pytest.approx(report["recordings"]["tones"])
    for figure in FIGURES:
        assert report["mean"][figure] > 0.9, figure
    assert abs(report["onset_error_ms"]["median"]) < 15
    assert report["interval"]["onset_f1"] is None  # of one recording


def test_the_delay_of_beginnings_is_that_of_the_way_of_streaming(tones: Path) -> None:
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


def test_processes_side_by_side_find_the_same(tones: Path) -> None:
    for name in ("again", "once more"):
        for suffix in (".wav", ".tsv"):
            (tones / f"{name}{suffix}").write_bytes((tones / f"tones{suffix}").read_bytes())
    spoilt = np.full(FAKE_RATE_HZ, np.inf, np.float32)
    soundfile.write(tones / "spoilt.wav", spoilt, FAKE_RATE_HZ, subtype="FLOAT")
    (tones / "spoilt.tsv").write_text("0.1\t0.2\t60\t64")
    alone = evaluate(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert len(alone[0]["recordings"]) == 3
    assert alone[0]["failures"].keys() == {"spoilt"}
    assert evaluate(tones, FakeTranscriber, [StreamOptions()], 0.0, jobs=2) == alone


def test_unreadable_recordings_are_reported_and_the_others_scored(
    tones: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = (tones / "tones.tsv").read_bytes()
    (tones / "broken.wav").write_bytes(b"RIFF no music")  # its header shows it
    spoilt = np.zeros(FAKE_RATE_HZ, np.float32)
    spoilt[1000] = np.nan  # shows only once it is transcribed
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
    (report,) = evaluate(tones, FakeTranscriber, [StreamOptions()], 0.0)
    shown = capsys.readouterr().out
    failures = report["failures"]
    assert sorted(failures) == ["broken", "garbled", "short", "spoilt"]
    assert re.search(r"cannot read .*broken\.wav", failures["broken"])
    assert re.search(r"garbled\.tsv:1", failures["garbled"])
    assert report["unlabelled"] == [str(tones / "orphan.wav")]
    assert re.search("most labels .* not in seconds", failures["short"])
    assert re.search(r"spoilt\.wav: sample 1000 is nan", failures["spoilt"])
    assert all(f"not scored: {reason}" in shown for reason in failures.values())
    assert report["recordings"] == alone["recordings"]
    assert report["mean"] == alone["mean"]
