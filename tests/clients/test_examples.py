"""Test of the quick-start notebook.

tests/model/test_export_onnx.py and tests/training/fine_tune/test_fine_tune.py run the others.
"""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.paths import REPOSITORY

EXAMPLES = REPOSITORY / "clients" / "examples"
TUNE = [60, 64, 67, 72, 55]  # pitches
CELL_TIMEOUT_S = 240.0


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
    assert [pitch for pitch in onsets if pitch in TUNE][: len(TUNE)] == TUNE
    assert any("image/png" in output.get("data", {}) for cell in outputs for output in cell)
    assert (tmp_path / "tune.mid").read_bytes().startswith(b"MThd")
