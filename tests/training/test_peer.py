"""The comparison with a peer, which a made-up one stands in for."""

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks.peer import main

PEER = {
    "__init__.py": """
class FilenameSuffix:
    onnx = "onnx"

def build_icassp_2022_model_path(suffix):
    return suffix
""",
    "inference.py": """
import numpy as np

class Model:
    def __init__(self, path):
        assert path == "onnx"

def predict(audio, model):
    if audio.stem == "broken":
        raise ValueError("out of tune")
    frames = np.zeros((258, 88))
    frames[26:52, 57 - 21] = 1.0
    return {"note": frames}, None, [(0.3, 0.6, 57, 0.5, None), (2.0, 2.1, 60, 0.5, [0])]
""",
    "note_creation.py": """
import numpy as np

def model_frames_to_time(n):
    return np.arange(n) * 256 / 22050
""",
}


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """An environment whose python finds a small package called basic_pitch."""
    package = tmp_path / "peer" / "lib" / "basic_pitch"
    package.mkdir(parents=True)
    for name, text in PEER.items():
        (package / name).write_text(text)
    python = tmp_path / "peer" / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{package.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path / "peer"


def test_both_are_scored_on_the_same_recordings(
    peer: Path, tones: Path, tiny_weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out.json"
    where = ["--data-dir", str(tones), "--peer", str(peer), "--json", str(out)]
    assert main([*where, "--model", str(tiny_weights), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "basic-pitch" in printed
    figures = json.loads(out.read_text())
    assert figures["ours"]["recordings"].keys() == figures["peer"]["recordings"].keys()
    # Of six notes it finds one, with its end, and adds a ghost.
    assert figures["peer"]["mean"]["onset_f1"] == pytest.approx(0.25)
    assert figures["peer"]["mean"]["onset_offset_f1"] == pytest.approx(0.25)
    assert 0.1 < figures["peer"]["mean"]["frame_ap"] < 0.3
    assert figures["peer"]["times_real_time"] > 0


def test_a_peer_that_is_not_there_or_fails_is_a_message(
    peer: Path, tones: Path, tiny_weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data-dir", str(tones), "--peer", str(tmp_path / "none")]) == 1
    assert f"venv {tmp_path}/none && {tmp_path}/none/bin/pip" in capsys.readouterr().err
    for suffix in (".wav", ".tsv"):
        (tones / f"tones{suffix}").rename(tones / f"broken{suffix}")
    where = ["--data-dir", str(tones), "--peer", str(peer), "--jobs", "1"]
    assert main([*where, "--model", str(tiny_weights)]) == 1
    assert "out of tune" in capsys.readouterr().err
