"""Tests of the wheel, and of the READMEs' examples with the wheel and its requirements only."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from glob import glob
from importlib import metadata
from pathlib import Path

import pytest
import soundfile
from packaging.requirements import Requirement

from tests.fakes import play
from tests.paths import REPOSITORY

pytestmark = pytest.mark.timeout(1200)  # a busy machine needs more than the default
PACKAGES = ("service", "model", "training", "clients")
DATA_FILES = (  # (folder, pattern)
    ("model/weights", "*"),
    ("service/static", "**/*"),
    ("service", "*.md"),
    ("model", "*.md"),
    ("training", "*.md"),
    ("clients", "examples/*"),
    ("service/library/rse_transcribe", "py.typed"),
    ("service", "py.typed"),
    ("model", "py.typed"),
    ("clients", "py.typed"),
)


def run(*command: object, folder: Path | None = None, **environment: str) -> str:
    """Return the output of a program. Fails the test if the program fails."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel, built without network. It is built from a copy, because a build writes build/."""
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", folder]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, source)
    (path,) = folder.glob("*.whl")
    return path


def link_requirements(package: metadata.Distribution, extra: str, folder: Path) -> None:
    """Link the requirements of a package from this environment into a folder, recursively."""
    for line in package.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            installed = metadata.distribution(requirement.name)
            names = {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}
            missing = [name for name in names if not (folder / name).exists()]
            for name in missing:
                (folder / name).symlink_to(Path(str(installed.locate_file(name))))
            if missing:
                for requirement_extra in requirement.extras or {""}:
                    link_requirements(installed, requirement_extra, folder)


@pytest.fixture(scope="module")
def base_install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of programs of an environment that has only the wheel and its requirements."""
    folder = tmp_path_factory.mktemp("base")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
    (packages,) = folder.glob("lib/*/site-packages")
    (information,) = packages.glob("rse_transcribe-*.dist-info")
    link_requirements(metadata.Distribution.at(information), "", packages)
    return folder / "bin"


def test_the_wheel_contains_all_modules_and_data_files(wheel: Path) -> None:
    sources = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    data = [path for folder, pattern in DATA_FILES for path in (REPOSITORY / folder).glob(pattern)]
    expected = {
        path.relative_to(REPOSITORY).as_posix().removeprefix("service/library/")
        for path in [*sources, *data]
        if path.is_file()
    }
    contents = set(zipfile.ZipFile(wheel).namelist())
    assert expected - contents == set()
    folders = {name.split("/")[0] for name in contents if ".dist-info/" not in name}
    assert folders == {*PACKAGES, "rse_transcribe"}


def test_the_microphone_client_does_not_import_torch() -> None:
    code = "import sys, clients.microphone; print(*(sys.modules.keys() & {'torch', 'fastapi'}))"
    assert run(sys.executable, "-c", code, folder=REPOSITORY).split() == []


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
        need_extra = ("export_onnx", "cluster")
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
