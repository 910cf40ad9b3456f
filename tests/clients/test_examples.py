"""The example programs detect the notes of a recording."""

import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import soundfile
from nbclient import NotebookClient

from tests.paths import REPOSITORY

EXAMPLES = REPOSITORY / "clients" / "examples"
RATE_HZ = 11_025
# (pitch, onset in s) of tones that fade out within a second
TUNE = [(60, 0.5), (64, 1.0), (67, 1.5), (72, 2.0), (55, 2.5)]
DURATION_S = 4.0
LEVELS = (1.0, 0.5, 0.35, 0.25, 0.15, 0.1)  # amplitudes of the partials
KERNEL_S = 240.0  # limit of a cell, on a busy machine
ALONE = """
import runpy, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "model", "service", "scipy", "soundfile"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_host_of_numpy_and_onnxruntime_alone(live_onnx: Path, tmp_path: Path) -> None:
    time = np.arange(round(DURATION_S * RATE_HZ)) / RATE_HZ
    samples = np.zeros_like(time)
    for pitch, onset in TUNE:  # roughly struck strings
        since = np.maximum(0, time - onset)
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        for number, level in enumerate(LEVELS, 1):
            partial = np.sin(2 * np.pi * number * frequency * since)
            samples += 0.2 * level * np.exp(-3 * (1 + number / 2) * since) * partial
    tune = tmp_path / "tune.wav"
    soundfile.write(tune, samples, RATE_HZ, subtype="PCM_16")
    host: list[str | Path] = [
        sys.executable,
        "-c",
        ALONE,
        EXAMPLES / "onnx_host.py",
        live_onnx,
        tune,
    ]
    run = subprocess.run(host, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    found = [(int(pitch), float(onset)) for onset, _, pitch in rows]
    for pitch, onset in TUNE:
        assert any(p == pitch and abs(s - onset) < 0.05 for p, s in found), (pitch, onset, found)
    assert len(found) < 3 * len(TUNE)


def test_the_notebook_prints_draws_and_saves_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{REPOSITORY / 'service' / 'library'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=KERNEL_S, resources=resources).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    said = "".join(output.text for output in outputs[-1] if output.output_type == "stream")
    begun = [int(line.split()[1]) for line in said.splitlines() if line.startswith("note_on")]
    assert [pitch for pitch, _ in TUNE] == [p for p in begun if p in dict(TUNE)][: len(TUNE)]
    assert any("image/png" in output.get("data", {}) for cell in outputs for output in cell)
    assert (tmp_path / "tune.mid").read_bytes().startswith(b"MThd")
