"""The command that evaluates a run, and the command line of training."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from training.lambada.evaluate import frequent_word, main
from training.lambada.task import LambadaConfig
from training.loop.loop import LoopConfig
from training.presets import LambadaRun
from training.run import train

PASSAGES = [
    "the owl . the cat . owl".split(),
    "the dog , dog , the , dog".split(),  # "the" is the first of equals
    "the end came fast".split(),  # not in the passage
]


def test_the_most_frequent_word_is_no_punctuation() -> None:
    assert frequent_word(PASSAGES, common=0) == 0
    assert frequent_word(PASSAGES, common=1) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def run(tiny_config: LambadaConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    loop = LoopConfig(steps=3, average=0, bfloat16=False)
    train(LambadaRun(lambada=replace(tiny_config, validation_passages=4), loop=loop, out=out))
    return out


@contextmanager
def fails(capsys: pytest.CaptureFixture[str], message: str) -> Iterator[None]:
    with pytest.raises(SystemExit) as stop:
        yield
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


def test_the_table(
    run: Path, passages_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "test.txt"
    lines = passages_file.read_text().splitlines()[:19]
    data.write_text("\n".join([*lines, "ada said nothing to bea"]) + "\n")
    assert main([str(run), "--data", str(data), "--weights", "last"]) == 0
    captured = capsys.readouterr()
    assert "| 20 passages | right |" in captured.out
    assert "| answer in the passage, the most possible | 95.00 % |" in captured.out
    assert not captured.err


def test_what_is_wrong_is_named(
    run: Path, passages_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fails(capsys, "No such file"):
        main([str(run), "--data", str(tmp_path / "missing.txt")])
    (tmp_path / "empty.txt").touch()
    with fails(capsys, "holds no passages"):
        main([str(run), "--data", str(tmp_path / "empty.txt")])
    with fails(capsys, "has the run saved yet?"):
        main([str(tmp_path), "--data", str(passages_file)])
    (tmp_path / "best.safetensors").write_bytes((run / "best.safetensors").read_bytes())
    card = json.loads((run / "best.json").read_text())
    (tmp_path / "best.json").write_text(json.dumps({**card, "name": "sorting"}))
    with fails(capsys, "is of task 'sorting'; expected 'lambada'"):
        main([str(tmp_path), "--data", str(passages_file)])
