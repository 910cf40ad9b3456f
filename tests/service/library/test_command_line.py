"""Tests of the command line of ``rse-transcribe``: usage errors, help, subcommands."""

import sys
from pathlib import Path

import pytest

from model.config import INSTRUMENTS
from rse_transcribe import command
from tests.commands import run
from tests.service.library.test_command import album as album


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{empty}"], "no recordings in {empty}"),
        (["{one}", "-o", "{empty}/gone/x.mid"], "there is no folder {empty}/gone"),
        (
            ["{one}", "-o", "x.ogg"],
            "x.ogg should end in .mid, .midi, .json, .csv, .musicxml, .mxl, .xml, .pdf, or in /",
        ),
        (["{album}", "-o", "{one}"], "{one} cannot be a folder: File exists"),
        (["{album}", "-o", "name.mid"], "2 recordings need a folder, not name.mid"),
        (["{one}", "--lookahead-ms", "0"], "lookahead_ms must be greater than 0, not 0.0"),
        (
            ["{one}", "--instruments", "Piano, kazoo"],
            f"instruments must be among {', '.join(INSTRUMENTS)}, not kazoo",
        ),
        (["{one}", "--bpm", "fast"], "argument --bpm: could not convert string to float"),
        (["{one}", "--first-downbeat", "-1"], "first_downbeat_s must be greater than or equal to"),
        (["{one}", "--bpm", "500"], "argument --bpm: the tempo must be from 20 to 400 BPM"),
        ([], "the following arguments are required: RECORDING"),
    ],
)
def test_usage_error_is_one_line(
    album: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    names = {"empty": tmp_path / "empty", "one": album / "one.wav", "album": album}
    status, _, error = run(command.main, *(argument.format(**names) for argument in arguments))
    assert status == 2
    assert error.startswith(f"rse-transcribe: {message.format(**names)}")
    assert error.count("\n") == 1


def test_lookahead_outside_the_range_is_reported(album: Path) -> None:
    arguments = album / "gone.wav", "--lookahead-ms"
    for value, used in ((10_000, 372), (1, 46)):
        notice = f"--lookahead-ms {value} is limited to {used} (range: 46 to 372)\n"
        assert notice in run(command.main, *arguments, value).error
    assert "limited" not in run(command.main, *arguments, 200).error


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "serve", "live", "keys", "keys new", "train", "train musicnet --preset live"),
        *("evaluate", "evaluate real", "evaluate families", "evaluate scores"),
        "evaluate musicnet",
    ],
)
def test_help_fits_a_screen(arguments: str) -> None:
    status, output, _ = run(command.main, *arguments.split(), "--help")
    assert status == 0
    assert output.startswith(f"usage: rse-transcribe {arguments.partition(' ')[0]}")
    assert len(output.splitlines()) <= 24
    assert max(map(len, output.splitlines())) < 80


def test_subcommand_returns_its_exit_status(tmp_path: Path) -> None:
    assert run(command.main, "keys", "new", "a:b").status == 2
    status, _, error = run(command.main, "evaluate", "real", "--data-dir", tmp_path)
    assert status == 1
    assert "rse-transcribe evaluate: no audio" in error


def test_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "training.run", raising=False)
    status, _, error = run(command.main, "train", "--help")
    assert status == 1
    assert "pip install 'rse-transcribe[training]'" in error
