"""The evaluation command: its output and exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from training.evaluate import main
from training.music.metrics import FIGURES


def test_the_command_writes_json_that_does_not_depend_on_the_number_of_processes(
    tones: Path, tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluated(jobs: str) -> Any:
        out = tmp_path / jobs / "out.json"
        where = ["--data-dir", str(tones), "--model", str(tiny_weights), "--json", str(out)]
        assert main(["real", *where, "--label-shift-ms", "10", "--jobs", jobs]) == 0
        return json.loads(out.read_text())

    report = evaluated("2")
    assert report == evaluated("1")
    # The delays are missing, because no note was matched.
    assert set(report["mean"]) == set(report["recordings"]["tones"]) == {*FIGURES}
    assert set(report["definitions"]) == {*FIGURES}
    printed = capsys.readouterr().out
    assert all(word in printed for word in (*FIGURES, "95 % interval"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "/no/such/folder"], "is not a folder"),
        (["--model", "nobody"], "no weights"),
        (["--lookahead-ms", "-5"], "lookahead"),
        (["--jobs", "0"], "must be greater than 0"),
    ],
)
def test_bad_input_is_a_message_and_a_status(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tones: Path
) -> None:
    assert main(["real", "--data-dir", str(tones), *arguments]) == 1
    assert message in capsys.readouterr().err
