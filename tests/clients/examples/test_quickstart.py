"""The notebook runs from top to bottom, and finds the notes that it plays."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.clients.examples.conftest import TUNE
from tests.paths import REPOSITORY

NOTEBOOK = REPOSITORY / "clients" / "examples" / "quickstart.ipynb"
KERNEL_S = 240.0  # of a machine that does much else, for a cell


def test_the_notebook_prints_draws_and_saves_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{REPOSITORY / 'service' / 'library'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=KERNEL_S, resources=resources).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    said = "".join(output.text for output in outputs[-1] if output.output_type == "stream")
    begun = [int(line.split()[1]) for line in said.splitlines() if line.startswith("note_on")]
    assert [pitch for pitch, _ in TUNE] == [p for p in begun if p in dict(TUNE)][: len(TUNE)]
    assert any("image/png" in output.get("data", {}) for cell in outputs for output in cell)
    assert (tmp_path / "tune.mid").read_bytes().startswith(b"MThd")
