"""The examples of the READMEs and the library, with an installed wheel only."""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
import soundfile

from tests.fakes import play
from tests.packaging.conftest import run
from tests.paths import REPOSITORY

# Of a machine that does much else.
pytestmark = pytest.mark.timeout(1200)


def shown(kind: str) -> str:
    """Blocks of code of this kind in the READMEs."""
    texts = [
        (REPOSITORY / name).read_text() for name in ("README.md", "clients/examples/README.md")
    ]
    return "".join(re.findall(rf"^```{kind}\n(.*?)^```$", "".join(texts), re.M | re.S))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of the names that the READMEs use."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "album").mkdir()
    for name in ("song.wav", "song.m4a", "song.flac", "album/first.wav", "take-1.wav"):
        kind = "FLAC" if name.endswith(".flac") else "WAV"  # whatever the name says
        soundfile.write(folder / name, play([(69, 0.2, 0.8)], 1.0, 22_050), 22_050, format=kind)
    return folder


def test_what_the_readmes_show_runs(bare: Path, home: Path, tmp_path: Path) -> None:
    """Run all concurrently, each in a folder of its own. PDFs and the export need an extra; their
    tests are tests/service/upload/test_score.py and tests/model/test_export_onnx.py."""
    shell = {"PATH": f"{bare}:{os.environ['PATH']}"}
    assert "rse_transcribe" in shown("python")
    lines = {line.partition("  #")[0].rstrip() for line in shown("console").splitlines()}
    assert {line.split()[0] for line in lines} == {"rse-transcribe", "python"}
    commands = [["python", "-W", "error", "-c", shown("python")]]
    commands += [
        ["bash", "-euc", line] for line in sorted(lines) if not re.search("export_onnx|pdf", line)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        folders = [shutil.copytree(home, tmp_path / str(n)) for n in range(len(commands))]
        list(
            workers.map(lambda command, own: run(*command, folder=own, **shell), commands, folders)
        )


def test_the_command_alone_on_the_path(bare: Path, home: Path, tmp_path: Path) -> None:
    """pipx and uv install the command as a link into an environment that is not active. A model.py
    of the user has no effect."""
    (tmp_path / "rse-transcribe").symlink_to(bare / "rse-transcribe")
    (home / "model.py").write_text("raise SystemExit('not mine')")
    shell = ["env", "-i", f"PATH={tmp_path}:/usr/bin:/bin", "sh", "-c"]
    try:
        said = run(*shell, "rse-transcribe --version; rse-transcribe song.wav -o -", folder=home)
    finally:
        (home / "model.py").unlink()
    version, head, *_ = said.splitlines()
    assert version == metadata.version("rse-transcribe")
    assert head.startswith("onset_s,offset_s,pitch,")
