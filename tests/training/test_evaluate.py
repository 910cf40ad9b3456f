"""Tests of the evaluation command: output and exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from training.evaluate import main
from training.music.metrics import FIGURES


def test_the_number_of_processes_does_not_change_the_report(
    tones: Path, tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluate(jobs: str) -> Any:
        out = tmp_path / jobs / "out.json"
        paths = ["--data-dir", str(tones), "--model", str(tiny_weights), "--json", str(out)]
        assert main(["real", *paths, "--label-shift-ms", "10", "--jobs", jobs]) == 0
        return json.loads(out.read_text())

    report = evaluate("2")
    assert report == evaluate("1")
    # The report has no delays, because no note was matched.
    assert set(report["mean"]) == set(report["recordings"]["tones"]) == {*FIGURES}
    assert set(report["definitions"]) == {*FIGURES}
    printed = capsys.readouterr().out
    assert all(label in printed for label in (*FIGURES, "95 % interval"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "/no/such/folder"], "is not a folder"),
        (["--model", "unknown"], "no weights"),
        (["--lookahead-ms", "-5"], "lookahead"),
    ],
)
def test_invalid_input_causes_an_error_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tones: Path
) -> None:
    assert main(["real", "--data-dir", str(tones), *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("real --data-dir . --jobs 0", "--jobs: must be at least 1, not 0"),
        ("families --synth . --seconds nan", "--seconds: must be at least 1, not nan"),
        ("families --synth . --seconds long", "--seconds: invalid float value: 'long'"),
    ],
)
def test_options_out_of_range_are_rejected(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(command.split())
    assert message in capsys.readouterr().err


def test_ctrl_c_prints_one_line(
    tones: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("training.evaluate.evaluate_collection", interrupt)
    assert main(["real", "--data-dir", str(tones)]) == 130
    assert capsys.readouterr().err == "python -m training.evaluate: interrupted\n"
