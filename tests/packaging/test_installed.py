"""Tests of the READMEs' examples with an installed wheel."""

import re
import shutil
from glob import glob
from importlib import metadata
from pathlib import Path

import pytest
import soundfile

from tests.fakes import play
from tests.packaging.conftest import run
from tests.paths import REPOSITORY

pytestmark = pytest.mark.timeout(1200)  # for a busy machine


def code_blocks(language: str) -> str:
    """Return the code blocks of a language in the READMEs."""
    texts = [
        (REPOSITORY / name).read_text() for name in ("README.md", "clients/examples/README.md")
    ]
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", "".join(texts), re.M | re.S))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of recordings with the names that the READMEs use."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "album").mkdir()
    for name in ("song.wav", "song.m4a", "song.flac", "album/first.wav", "take-1.wav"):
        container = "FLAC" if name.endswith(".flac") else "WAV"  # also for .m4a
        tone = play([(69, 0.2, 0.8)], 1.0, 22_050)
        soundfile.write(folder / name, tone, 22_050, format=container)
    return folder


IMPORT_ALL = """
import importlib, pkgutil

for name in ("service", "rse_transcribe", "model"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        need_extra = "import_tf tf_checkpoint export_onnx cluster".split()
        if module.name.rpartition(".")[2] not in ("__main__", *need_extra):
            importlib.import_module(module.name)
try:
    import model.export_onnx
except SystemExit as error:
    print(error)
"""


def test_readme_examples_and_all_modules_run(
    base_install: Path, home: Path, tmp_path: Path
) -> None:
    """Run them in one process, because importing torch takes seconds. Each example has its folder.

    PDFs and the ONNX export need extras. tests/service/upload/test_score.py and
    tests/model/test_export_onnx.py test them.
    """
    library = code_blocks("python")
    assert "rse_transcribe" in library
    lines = {line.partition("  #")[0].rstrip() for line in code_blocks("console").splitlines()}
    assert {line.split()[0] for line in lines} == {"rse-transcribe", "python"}
    examples = [library]
    for line in sorted(lines):
        if not re.search("export_onnx|pdf|--help", line):
            arguments = [
                path
                for argument in line.split()[1:]
                for path in sorted(glob(argument, root_dir=home)) or [argument]
            ]
            examples.append(f"assert main({arguments}) == 0")
    program = "import os\nfrom rse_transcribe.command import main\n"
    for number, example in enumerate(examples):
        folder = shutil.copytree(home, tmp_path / str(number))
        program += f"os.chdir({str(folder)!r})\n{example}\n"
    output = run(base_install / "python", "-W", "error", "-c", program + IMPORT_ALL)
    assert output.endswith("onnx is missing: pip install 'rse-transcribe[onnx]'\n")
    assert (tmp_path / "1" / "midi" / "take-1.mid").exists()


def test_the_command_runs_as_a_link(base_install: Path, home: Path, tmp_path: Path) -> None:
    """pipx and uv install the command as a link into an inactive environment. The user's file
    model.py in the current folder has no effect."""
    (tmp_path / "rse-transcribe").symlink_to(base_install / "rse-transcribe")
    (home / "model.py").write_text("raise SystemExit('wrong module')")
    shell = ["env", "-i", f"PATH={tmp_path}:/usr/bin:/bin", "sh", "-c"]
    try:
        output = run(*shell, "rse-transcribe --version; rse-transcribe song.wav -o -", folder=home)
    finally:
        (home / "model.py").unlink()
    version, header, *_ = output.splitlines()
    assert version == metadata.version("rse-transcribe")
    assert header.startswith("onset_s,offset_s,pitch,")
