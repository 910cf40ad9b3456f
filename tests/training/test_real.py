"""Recordings through the service's pipeline, scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from service.options import StreamOptions
from service.transcribe import transcribe_array
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.training.conftest import TONES
from training.metrics import FIGURES
from training.real import AudioError, evaluate_folder
from training.recordings import LabelError
from training.window_memo import WindowMemo


def test_what_the_model_hears_is_scored(tones: Path) -> None:
    (report,) = evaluate_folder(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert report["recordings"].keys() == {"tones"}
    assert report["mean"] == pytest.approx(report["recordings"]["tones"])
    for figure in FIGURES:
        assert report["mean"][figure] > 0.9, figure
    assert abs(report["onset_error_ms"]["median"]) < 15
    assert sum(row["notes"] for row in report["octaves"].values()) == len(TONES)
    assert report["polyphony"]["1"]["onset_f1"] == 1.0
    assert report["interval"]["onset_f1"] is None  # of one recording


def test_shifted_labels_are_another_truth(tones: Path) -> None:
    (report,) = evaluate_folder(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.1)
    assert report["mean"]["onset_f1"] < 0.1
    assert report["label_shift_ms"] == 100


def test_several_lookaheads_give_what_each_alone_gives(tones: Path) -> None:
    streams = [StreamOptions(lookahead_ms=ms) for ms in (50, 100, 200)]
    together = evaluate_folder(tones, FakeTranscriber, streams, label_shift_s=0.0)
    alone = [evaluate_folder(tones, FakeTranscriber, [s], label_shift_s=0.0) for s in streams]
    assert [[report] for report in together] == alone
    assert [report["lookahead_ms"] for report in together] == [50, 100, 200]


def test_windows_are_computed_once(tones: Path) -> None:
    samples, rate = soundfile.read(tones / "tones.wav", dtype="float32")
    memo = WindowMemo(FakeTranscriber())
    direct = transcribe_array(samples, rate, FakeTranscriber(), StreamOptions())
    first = transcribe_array(samples, rate, memo, StreamOptions())
    computed = memo.computed
    second = transcribe_array(samples, rate, memo, StreamOptions())
    assert memo.computed == computed > 0
    assert direct.notes == first.notes == second.notes


@pytest.mark.timeout(300)  # two processes that import torch, perhaps on a busy machine
def test_processes_side_by_side_find_the_same(tones: Path) -> None:
    for name in ("again", "once more"):
        for suffix in (".wav", ".tsv"):
            (tones / f"{name}{suffix}").write_bytes((tones / f"tones{suffix}").read_bytes())
    alone = evaluate_folder(tones, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert len(alone[0]["recordings"]) == 3
    assert evaluate_folder(tones, FakeTranscriber, [StreamOptions()], 0.0, jobs=2) == alone


def test_a_picture_of_each_recording_and_look_ahead(tones: Path, tmp_path: Path) -> None:
    streams = [StreamOptions(lookahead_ms=ms) for ms in (50, 100)]
    pictures = tmp_path / "deep" / "pictures"
    evaluate_folder(tones, FakeTranscriber, streams, 0.0, pictures=pictures)
    assert sorted(path.name for path in pictures.iterdir()) == ["tones_100ms.png", "tones_50ms.png"]
    with Image.open(pictures / "tones_50ms.png") as picture:
        assert np.asarray(picture).std() > 0


def test_audio_that_cannot_be_read_is_told_first(tones: Path) -> None:
    (tones / "broken.wav").write_bytes(b"RIFF no music")
    (tones / "broken.tsv").write_text("0.1\t0.2\t60\t64")
    with pytest.raises(AudioError, match=r"cannot read .*broken\.wav"):
        evaluate_folder(tones, _unused, [StreamOptions()], 0.0)


def test_audio_that_is_no_sound_is_named(tones: Path) -> None:
    samples = np.zeros(FAKE_RATE_HZ, np.float32)
    samples[1000] = np.nan
    soundfile.write(tones / "tones.wav", samples, FAKE_RATE_HZ, subtype="FLOAT")
    (tones / "tones.tsv").write_text("0.1\t0.2\t60\t64")
    with pytest.raises(AudioError, match=r"tones\.wav: sample 1000 is nan"):
        evaluate_folder(tones, FakeTranscriber, [StreamOptions()], 0.0)


def test_labels_beyond_the_audio_are_told(tones: Path) -> None:
    told: list[str] = []
    with (tones / "tones.tsv").open("a") as labels:
        labels.write("\n99\t99.5\t60\t64")
    evaluate_folder(tones, FakeTranscriber, [StreamOptions()], 0.0, tell=told.append)
    assert told[0] == "tones: 1 of 7 labels begin after the end of the audio (3.0 s)"
    (tones / "tones.tsv").write_text("9182\t90782\t60\t64")
    with pytest.raises(LabelError, match="1 of 1 labels .* are their times in seconds"):
        evaluate_folder(tones, _unused, [StreamOptions()], 0.0)


def _unused() -> FakeTranscriber:
    raise AssertionError("nothing is to be computed")
