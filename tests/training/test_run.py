"""The command line: presets, overrides, and what it says when something is wrong."""

import ast
import errno
import inspect
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from model.symbols import load_symbol_network
from training.presets import COMMANDS, presets_of
from training.run import main, parse

TINY = (
    "algorithmic --task addition --algorithmic.bins 8 --algorithmic.rse.maps 4 --loop.steps 4 "
    "--algorithmic.examples-per-length 9 --algorithmic.validation-examples 8 "
    "--loop.log-steps 2 --loop.no-tensorboard"
).split()


def test_a_run_from_the_command_line_leaves_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--out", str(tmp_path / "a")]) == 0
    assert "accuracy_8" in capsys.readouterr().out
    assert load_symbol_network(tmp_path / "a" / "best.safetensors").config.rse.maps == 4
    card = json.loads((tmp_path / "a" / "best.json").read_text())
    assert card["name"] == "addition"
    assert card["training"]["steps"] == 4
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [2, 4]
    assert lines[-1]["kind"] == "validation"


@pytest.mark.parametrize(
    "flags",
    [
        "--algorithmic.rse.unit gated",
        "--algorithmic.rse.norm none --algorithmic.rse.residual-scale none",
        "--algorithmic.rse.activation relu --algorithmic.rse.residual-scale one "
        "--algorithmic.rse.hidden-factor 4",
    ],
)
def test_every_ablation_of_the_paper_is_a_flag_that_trains(tmp_path: Path, flags: str) -> None:
    assert main([*TINY, *flags.split(), "--out", str(tmp_path)]) == 0


def undocumented(config: Any) -> Iterator[str]:
    """Fields of a configuration, and of those within, without a line that explains them."""
    (definition,) = ast.parse(inspect.getsource(type(config))).body
    assert isinstance(definition, ast.ClassDef)
    for node, after in itertools.pairwise([*definition.body, ast.Pass()]):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = getattr(config, node.target.id)
        if is_dataclass(value):
            yield from undocumented(value)
        elif not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            yield f"{type(config).__name__}.{node.target.id}"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_field_of_every_preset_is_explained(command: str) -> None:
    for preset in presets_of(command, "addition").values():
        assert list(undocumented(preset)) == []


def test_help_lists_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["musicnet", "--help-all"])
    assert "in minutes of training" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_other_folders_than_the_presets_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", "synth", "--data-dir", "/no/such/folder", "--music.workers", "0"]
    assert main(["musicnet", *data, "--out", str(tmp_path)]) == 1
    assert "/no/such/folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--preset gigantic", "algorithmic has no preset 'gigantic'"),
        ("--task division", "invalid choice: 'division'"),
        ("--algorithmic.bins 8 24", "powers of two"),
        ("--loop.steps 0", "steps must be"),
        ("--loop.max-minutes -1", "max_minutes must be"),
        ("--loop.learning-rate nan", "learning_rate must be"),
    ],
)
def test_what_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["algorithmic", *arguments.split(), "--out", str(tmp_path / "a")])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_a_folder_with_a_run_is_neither_overwritten_nor_resumed_as_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*TINY, *out, "--resume"]) == 1
    assert "nothing to resume" in capsys.readouterr().err
    assert main([*TINY, *out]) == 0
    state = (tmp_path / "state.pt").read_bytes()
    assert main([*TINY, *out]) == 1
    assert "continue with --resume" in capsys.readouterr().err
    assert main([*TINY, *out, "--resume", "--algorithmic.rse.maps", "6"]) == 1
    assert "rse.maps is 4 there and 6 here" in capsys.readouterr().err
    assert (tmp_path / "state.pt").read_bytes() == state
    (tmp_path / "state.pt").write_bytes(state[: len(state) // 2])
    assert main([*TINY, *out, "--resume"]) == 1
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("place", [0.0, 0.5])
def test_a_damaged_state_is_reported_and_not_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: float
) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*TINY, "--loop.max-steps", "2", *out]) == 0
    state = (tmp_path / "state.pt").read_bytes()
    begin = int(place * len(state))
    (tmp_path / "state.pt").write_bytes(state[:begin] + b"hello" * 20 + state[begin + 100 :])
    before = (tmp_path / "last.safetensors").read_bytes()
    assert main([*TINY, *out, "--resume"]) == 1
    assert "cannot read" in capsys.readouterr().err
    assert (tmp_path / "last.safetensors").read_bytes() == before
    (tmp_path / "state.pt").write_bytes(b"hello")
    assert main([*TINY, *out, "--resume"]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_a_full_disk_is_reported_and_leaves_the_old_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*TINY, "--loop.max-steps", "2", *out]) == 0
    before = {name: (tmp_path / name).read_bytes() for name in ("state.pt", "last.safetensors")}

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main([*TINY, *out, "--resume"]) == 1
    assert "No space left" in capsys.readouterr().err
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert not list(tmp_path.glob("*.partial"))


def test_a_stopped_process_saves_and_can_be_resumed(tmp_path: Path) -> None:
    arguments = [*TINY, "--loop.steps", "1000000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "training.run", *arguments], stderr=subprocess.DEVNULL
    )
    metrics = tmp_path / "metrics.jsonl"
    try:
        while process.poll() is None and not metrics.exists():
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    stopped = json.loads((tmp_path / "last.json").read_text())["training"]["steps"]
    assert 0 < stopped < 1_000_000
    assert main([*arguments, "--resume", "--loop.max-steps", "3"]) == 0
    card = json.loads((tmp_path / "last.json").read_text())
    assert card["training"]["steps"] == stopped + 3
