"""Tests that the example programs detect the notes of a recording."""

import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import soundfile
from nbclient import NotebookClient

from tests.fakes import tone_hz
from tests.paths import REPOSITORY

EXAMPLES = REPOSITORY / "clients" / "examples"
RATE_HZ = 11_025
TUNE = [(60, 0.5), (64, 1.0), (67, 1.5), (72, 2.0), (55, 2.5)]  # (pitch, onset_s)
DURATION_S = 4.0
PARTIAL_AMPLITUDES = (1.0, 0.5, 0.35, 0.25, 0.15, 0.1)
CELL_TIMEOUT_S = 240.0
RUN_WITHOUT_SERVICE_LIBRARIES = """
import runpy, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "model", "service", "scipy", "soundfile"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_onnx_host_needs_numpy_and_onnxruntime_only(live_onnx: Path, tmp_path: Path) -> None:
    time_s = np.arange(round(DURATION_S * RATE_HZ)) / RATE_HZ
    samples = np.zeros_like(time_s)
    for pitch, onset_s in TUNE:  # decaying partials, similar to struck strings
        age_s = np.maximum(0, time_s - onset_s)
        for number, amplitude in enumerate(PARTIAL_AMPLITUDES, 1):
            partial = np.sin(2 * np.pi * number * tone_hz(pitch) * age_s)
            samples += 0.2 * amplitude * np.exp(-3 * (1 + number / 2) * age_s) * partial
    tune = tmp_path / "tune.wav"
    soundfile.write(tune, samples, RATE_HZ, subtype="PCM_16")
    host: list[str | Path] = [sys.executable, "-c", RUN_WITHOUT_SERVICE_LIBRARIES]
    host += [EXAMPLES / "onnx_host.py", live_onnx, tune]
    run = subprocess.run(host, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    notes = [(int(pitch), float(onset)) for onset, _, pitch in rows]
    for pitch, onset_s in TUNE:
        assert any(p == pitch and abs(t - onset_s) < 0.05 for p, t in notes), (pitch, notes)
    assert len(notes) < 3 * len(TUNE)


def test_the_notebook_prints_plots_and_saves_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{REPOSITORY / 'service' / 'library'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=CELL_TIMEOUT_S, resources=resources).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    printed = "".join(output.text for output in outputs[-1] if output.output_type == "stream")
    onsets = [int(line.split()[1]) for line in printed.splitlines() if line.startswith("note_on")]
    assert [pitch for pitch, _ in TUNE] == [p for p in onsets if p in dict(TUNE)][: len(TUNE)]
    assert any("image/png" in output.get("data", {}) for cell in outputs for output in cell)
    assert (tmp_path / "tune.mid").read_bytes().startswith(b"MThd")
