"""Evaluation of recordings through the service's pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from service.options import StreamOptions
from service.transcribe import transcribe_array
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play
from training.evaluate import evaluate_folder, main
from training.metrics import FIGURES
from training.window_memo import WindowMemo

NOTES = [(FAKE_PITCHES[i % 4], 0.3 + 0.4 * i, 0.6 + 0.4 * i) for i in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "tones.wav", play(NOTES, 3.0, FAKE_RATE_HZ), FAKE_RATE_HZ)
    rows = [f"{onset}\t{offset}\t{pitch}\t64" for pitch, onset, offset in NOTES]
    (tmp_path / "tones.tsv").write_text("\n".join(rows))
    return tmp_path


def test_what_the_model_hears_is_scored(folder: Path) -> None:
    (report,) = evaluate_folder(folder, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert report["recordings"].keys() == {"tones"}
    assert report["mean"] == pytest.approx(report["recordings"]["tones"])
    for figure in FIGURES:
        assert report["mean"][figure] > 0.9, figure
    assert abs(report["onset_error_ms"]["median"]) < 15


def test_shifted_labels_are_another_truth(folder: Path) -> None:
    (report,) = evaluate_folder(folder, FakeTranscriber, [StreamOptions()], label_shift_s=0.1)
    assert report["mean"]["onset_f1"] < 0.1
    assert report["label_shift_ms"] == 100


def test_the_command_writes_json(folder: Path, tmp_path: Path, tiny_checkpoint: Path) -> None:
    out = tmp_path / "deep" / "out.json"
    status = main(
        ["real", "--data-dir", str(folder), "--model", str(tiny_checkpoint), "--json", str(out)]
    )
    assert status == 0
    report = json.loads(out.read_text())
    assert set(report["mean"]) == set(FIGURES)
    assert all(np.isfinite(value) for value in report["mean"].values())


def test_several_lookaheads_give_what_each_alone_gives(folder: Path) -> None:
    streams = [StreamOptions(lookahead_ms=ms) for ms in (50, 100, 200)]
    together = evaluate_folder(folder, FakeTranscriber, streams, label_shift_s=0.0)
    alone = [evaluate_folder(folder, FakeTranscriber, [s], label_shift_s=0.0) for s in streams]
    assert [[report] for report in together] == alone
    assert [report["lookahead_ms"] for report in together] == [50, 100, 200]


def test_windows_are_computed_once(folder: Path) -> None:
    samples, rate = soundfile.read(folder / "tones.wav", dtype="float32")
    memo = WindowMemo(FakeTranscriber())
    direct = transcribe_array(samples, rate, FakeTranscriber(), StreamOptions())
    first = transcribe_array(samples, rate, memo, StreamOptions())
    computed = memo.computed
    second = transcribe_array(samples, rate, memo, StreamOptions())
    assert memo.computed == computed > 0
    assert direct.notes == first.notes == second.notes


def test_processes_side_by_side_find_the_same(folder: Path) -> None:
    for name in ("again", "once more"):
        for suffix in (".wav", ".tsv"):
            (folder / f"{name}{suffix}").write_bytes((folder / f"tones{suffix}").read_bytes())
    alone = evaluate_folder(folder, FakeTranscriber, [StreamOptions()], label_shift_s=0.0)
    assert len(alone[0]["recordings"]) == 3
    assert evaluate_folder(folder, FakeTranscriber, [StreamOptions()], 0.0, jobs=2) == alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "/no/such/folder"], "no audio with labels"),
        (["--data-dir", ".", "--model", "nobody"], "no weights"),
        (["--data-dir", ".", "--lookahead-ms", "-5"], "lookahead"),
    ],
)
def test_bad_input_is_a_message_and_a_status(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path
) -> None:
    if "--model" not in arguments:
        arguments = [*arguments, "--model", str(tiny_checkpoint)]
    assert main(["real", *arguments]) == 1
    assert message in capsys.readouterr().err
