"""Test that the commands of training/PAPER.md run as written, with small sizes."""

import importlib
import re
import subprocess
from glob import glob
from pathlib import Path

import numpy as np
import pytest

from tests.paths import REPOSITORY
from tests.training.musicnet.conftest import write_archive
from training.lambada.passages import synthetic_passages

LOOP = "--loop.steps 1"
SMALL = {
    "training.run algorithmic": f"""--algorithmic.rse.maps 4 --algorithmic.bins 8 {LOOP}
        --algorithmic.examples-per-length 4 --algorithmic.validation-examples 4""",
    "training.run lambada": f"""--lambada.rse.maps 4 --lambada.rse.blocks 1 --lambada.length 32
        --lambada.batch-size 2 --lambada.validation-passages 4 --lambada.votes 2 {LOOP}""",
    "training.run musicnet": f"""--music.model.rse.maps 2 --music.model.rse.blocks 1 {LOOP}
        --music.batch-size 1 --music.workers 0 --music.validation-windows 8
        --music.family-passages 1
        --music.synth.cache cache --music.synth.pool-excerpts 1""",
    "training.evaluate musicnet": "--stride 8192 --jobs 1",
    "training.musicnet.stand_in": "--seconds 3",
}
MODULES = {"training.run", "training.evaluate", "training.algorithmic.evaluate"} | {
    "training.lambada.evaluate",
    "training.musicnet.stand_in",
    "training.evaluation.plots",
}


def commands() -> list[list[str]]:
    """Return the document's commands in order, each as its module and arguments.

    Loops run for their first and last value only.
    """
    document = (REPOSITORY / "training" / "PAPER.md").read_text()
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", document, re.DOTALL | re.MULTILINE))
    script = re.sub(r"(for \w+ in \S+) .*?(\S+;)", r"\1 \2", script)
    recorder = 'set -f; python() { printf "%s\\t" "$@"; echo; }\n'
    output = subprocess.check_output(["bash", "-euc", recorder + script], text=True)
    return [line.rstrip("\t").split("\t")[1:] for line in output.splitlines()]


def test_the_documented_commands_run_as_written(
    tmp_path: Path, synth_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("training.algorithmic.evaluate.LENGTHS", (8,))
    monkeypatch.setattr("training.algorithmic.evaluate.EXAMPLES", 4)
    write_archive(tmp_path / "ARCHIVE")
    (tmp_path / "SYNTH").symlink_to(synth_root)
    (tmp_path / "TEXT").mkdir()
    passages = synthetic_passages(np.random.default_rng(0), 30)
    for name in ("train", "lambada_development_plain_text", "lambada_test_plain_text"):
        (tmp_path / "TEXT" / f"{name}.txt").write_text(passages)
    vectors = "".join(f"{word} 0.1 -0.2 0.3\n" for word in sorted(set(passages.split())))
    (tmp_path / "TEXT" / "wiki-news-300d-1M.vec").write_text(vectors)

    modules_run = set()
    for module, *arguments in commands():
        if module == "training.evaluation.speed":
            continue  # tests/training/evaluation/test_speed.py
        task = " ".join([module, *arguments[:1]])
        small = SMALL.get(task, SMALL.get(module, "")).split()
        expanded = [path for argument in arguments for path in sorted(glob(argument)) or [argument]]
        main = importlib.import_module(module).main
        assert main([*expanded, *small]) == 0, f"{task} {expanded}"
        modules_run.add(module)
    assert modules_run == MODULES
    assert len(list(Path("figures").glob("*/*.png"))) >= 8
