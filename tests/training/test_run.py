"""Tests of the training command: presets, overrides, resuming and error messages."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.commands import interruptible_imports
from model.symbols import load_symbol_network
from tests.commands import run
from training.presets import COMMANDS, AlgorithmicRun
from training.run import main, parse

TINY = (
    "algorithmic --task addition --algorithmic.bins 8 --algorithmic.rse.maps 4 --loop.steps 4 "
    "--algorithmic.examples-per-length 9 --algorithmic.validation-examples 8 "
    "--loop.log-steps 2"
).split()


def test_a_run_saves_weights_metrics_and_a_card(tmp_path: Path) -> None:
    status, printed, _ = run(main, *TINY, "--out", tmp_path / "a")
    assert status == 0
    assert "accuracy_8" in printed
    assert "accuracy: 0.500 by chance" in printed
    assert load_symbol_network(tmp_path / "a" / "best.safetensors").config.rse.maps == 4
    card = json.loads((tmp_path / "a" / "best.json").read_text())
    assert card["name"] == "addition"
    assert card["training"]["steps"] == 4
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [2, 4]
    assert lines[-1]["kind"] == "validation"


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("musicnet", "--music.model.rse.maps 4 --music.batch-size 2 --music.validation-windows 8"),
        ("lambada", "--lambada.rse.maps 4 --lambada.made-up 20 --lambada.validation-passages 4"),
    ],
)
def test_the_default_preset_needs_no_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str, options: str
) -> None:
    caplog.set_level("INFO")
    assert run(main, task, *options.split(), "--loop.steps", 1, "--out", tmp_path).status == 0
    assert f"{task}, preset minute, data: synthetic" in caplog.messages
    assert f"step 0 of 1, folder {tmp_path}" in caplog.messages


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("musicnet --preset live --data-dir /none", "missing: /none (--data-dir);"),
        ("musicnet --preset paper --data-dir /none", "missing: /none (--data-dir);"),
        (
            "musicnet --preset live --data-dir {} --music.synth.real-root /none",
            "missing: /none (--music.synth.real-root);",
        ),
        ("lambada --preset novels --data-dir /none", "missing: /none/novels.tar.xz (--lambada."),
        ("lambada --preset paper --data-dir {0}", "wiki-news-300d-1M.vec (--lambada.vectors);"),
    ],
)
def test_errors_name_the_option_of_missing_data(tmp_path: Path, command: str, option: str) -> None:
    for name in ("novels.tar.xz", "lambada_development_plain_text.txt"):
        (tmp_path / name).touch()
    out = tmp_path / "run"
    status, _, error = run(main, *command.format(tmp_path).split(), "--out", out)
    assert status == 1
    assert option in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("preset", "network"),
    [("paper", "shuffle='released', init='released'"), ("paper-text", "shuffle='paper', init=")],
)
def test_the_paper_presets_differ_as_documented(preset: str, network: str) -> None:
    is_text = preset == "paper-text"
    for task in COMMANDS:
        parsed = parse([task, "--preset", preset])
        assert network in repr(parsed)
        assert parsed.loop.optimizer == ("radam" if is_text else "released")
        assert bool(re.search(r"smoothing=0\.0[,)]", repr(parsed))) == is_text
    for task, blocks in (("addition", 1), ("multiplication", 2)):
        algorithmic = parse(["algorithmic", "--preset", preset, "--algorithmic.task", task])
        assert isinstance(algorithmic, AlgorithmicRun)
        assert (algorithmic.algorithmic.task, algorithmic.algorithmic.rse.blocks) == (task, blocks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("algorithmic --prest m96", "unknown option --prest; did you mean --preset?"),
        ("algorithmic --loop.setps 5", "--loop.steps"),
        ("algorithmic --preset gigantic", "invalid choice: 'gigantic'"),
        ("algorithmic --task division", "invalid choice: 'division'"),
        ("algorithmic --data-dir /tmp", "--data-dir"),
        ("algorithmic --algorithmic.bins 8 24", "powers of two"),
        ("algorithmic --loop.learning-rate nan", "learning_rate must be"),
        ("algorithmic --loop.seed -1", "seed must be"),
        ("musicnet --data-dir /tmp", "preset minute needs no data; choose another --preset"),
        ("lambada --data-dir /tmp", "preset minute needs no data; choose another --preset"),
        (
            "musicnet --music.synth.real-root /tmp",
            "real-root: preset minute needs no data",
        ),
        ("lambada --lambada.train /tmp/a.txt", "--lambada.train: preset minute needs no data"),
        ("musicnet --music.batch-size 0", "batch_size must be"),
        ("musicnet --music.weights.onset -1", "onset must be greater than"),
    ],
)
def test_invalid_options_are_rejected(tmp_path: Path, arguments: str, message: str) -> None:
    status, _, error = run(main, *arguments.split(), "--out", tmp_path / "a")
    assert status == 2
    assert message in error
    assert not (tmp_path / "a").exists()


def test_ctrl_c_during_imports_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info, interruptible_imports("program"):
        raise KeyboardInterrupt
    assert exit_info.value.code == 130
    assert capsys.readouterr().err == "program: interrupted; nothing was saved\n"


def test_existing_runs_are_never_overwritten(tmp_path: Path) -> None:
    def error_of(*arguments: str, folder: Path = tmp_path) -> str:
        status, _, error = run(main, *arguments, "--out", folder)
        assert status == 1
        return error

    assert "nothing to resume" in error_of(*TINY, "--resume")
    assert run(main, *TINY, "--out", tmp_path).status == 0
    state = (tmp_path / "state.pt").read_bytes()
    assert "continue with --resume" in error_of(*TINY)
    live = "musicnet", "--preset", "live", "--resume"
    error = error_of(*live, folder=tmp_path / "elsewhere")
    assert "elsewhere/config.json does not exist" in error
    for change, message in {
        "algorithmic --algorithmic.rse.maps 6": "cannot change algorithmic.rse.maps from 4 to 6",
        "algorithmic --task sorting": "algorithmic.task from addition to sorting",
        "algorithmic --loop.optimizer radam": "cannot change loop.optimizer from muon to radam",
        "algorithmic --loop.weight-decay 0": "cannot change loop.weight_decay from 0.01 to 0",
        "algorithmic --preset paper": "contains a run of algorithmic, preset minute",
        "lambada": "contains a run of algorithmic, preset minute",
    }.items():
        assert message in error_of(*change.split(), "--resume")
    assert (tmp_path / "state.pt").read_bytes() == state
    for damaged in (state[: len(state) // 2], b""):
        (tmp_path / "state.pt").write_bytes(damaged)
        assert "cannot read" in error_of(*TINY, "--resume")


def test_a_complete_run_keeps_its_options(tmp_path: Path) -> None:
    assert run(main, *TINY, "--out", tmp_path).status == 0
    files = [tmp_path / name for name in ("config.json", "last.json", "best.json")]
    contents = [file.read_bytes() for file in files]
    resume = "algorithmic", "--out", tmp_path, "--resume"
    for change, message in {
        "--loop.learning-rate 9 --loop.seed 77": "cannot change loop.learning_rate from",
        "--loop.steps 3": "cannot change loop.steps from 4 to 3",
    }.items():
        status, _, error = run(main, *resume, *change.split())
        assert status == 1
        assert message in error
        assert [file.read_bytes() for file in files] == contents
    assert run(main, *resume, "--loop.max-minutes", 1).status == 0
    assert run(main, *resume, "--loop.steps", 5).status == 0
    assert json.loads(files[1].read_text())["training"]["steps"] == 5


def test_a_terminated_run_can_be_resumed(tmp_path: Path) -> None:
    arguments = [*TINY, "--loop.steps", "1000000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "training.run", *arguments], stderr=subprocess.DEVNULL
    )
    metrics = tmp_path / "metrics.jsonl"
    try:
        while process.poll() is None and not metrics.exists():
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.wait()
    steps = json.loads((tmp_path / "last.json").read_text())["training"]["steps"]
    assert 0 < steps < 1_000_000
    resume = ["algorithmic", "--out", str(tmp_path), "--resume", "--loop.max-minutes", "1e-9"]
    assert main(resume) == 0
    card = json.loads((tmp_path / "last.json").read_text())
    assert card["training"]["steps"] == steps + 1
