"""The notebook runs from top to bottom, and finds the notes that it plays."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.clients.examples.conftest import TUNE
from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "clients" / "examples" / "quickstart.ipynb"
KERNEL_S = 240.0  # of a machine that does much else, for a cell


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        library = REPOSITORY / "service" / "library"
        patch.setenv("PYTHONPATH", f"{REPOSITORY}:{library}")
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        client = NotebookClient(
            notebook, timeout=KERNEL_S, resources={"metadata": {"path": str(folder)}}
        )
        client.execute()
    assert (folder / "tune.mid").read_bytes().startswith(b"MThd")
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_stream_prints_the_notes(cells: list[nbformat.NotebookNode]) -> None:
    said = "".join(output.text for output in cells[-1].outputs if output.output_type == "stream")
    begun = [int(line.split()[1]) for line in said.splitlines() if line.startswith("note_on")]
    assert [pitch for pitch, _ in TUNE] == [p for p in begun if p in dict(TUNE)][: len(TUNE)]


def test_the_plot_is_drawn(cells: list[nbformat.NotebookNode]) -> None:
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
