"""The paper's runs in order, rehearsed at tiny sizes."""

import json
from pathlib import Path

import pytest

from training import paper

NOVEL = "Anne had a lantern in the wood. The path was dark, and Anne lost the lantern there. " * 9


def test_a_rehearsal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    novels, passages = tmp_path / "novels", tmp_path / "passages.txt"
    novels.mkdir()
    (novels / "a.txt").write_text(NOVEL)
    passages.write_text("the lantern of anne was in the wood , said anne\n" * 2)
    files = ["--novels", str(novels), "--development", str(passages), "--test", str(passages)]
    arguments = ["--out", str(tmp_path / "runs"), "--rehearse", *files]
    assert paper.main([*arguments, "--minutes", "0.0001"]) == paper.UNFINISHED
    results = tmp_path / "runs" / "rehearsal" / "results.md"  # not among the real ones
    assert "Not finished." in results.read_text()
    assert paper.main(arguments) == 0
    text = results.read_text()
    assert "Not finished." not in text
    assert text.count("| symbols right |") == 6
    assert "2 passages" in text
    first = results.parent / "addition_residual" / "metrics.jsonl"
    steps = [json.loads(line)["step"] for line in first.read_text().splitlines()]
    assert max(steps) == 4
    before = first.stat().st_mtime_ns
    assert paper.main(arguments) == 0
    assert first.stat().st_mtime_ns == before


def test_a_missing_archive_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = ["--novels", str(tmp_path / "none.tar"), "--development", str(tmp_path / "none.txt")]
    out = ["--out", str(tmp_path / "runs"), "--rehearse"]
    assert paper.main([*out, *missing]) == 1
    assert "No such file" in capsys.readouterr().err
