"""The wheel, and environments that have nothing but it and what it asks for."""

import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import make_once
from tests.paths import REPOSITORY

PACKAGES = ("service", "model", "training", "clients")


def run(*command: object, folder: Path | None = None, **environment: str) -> str:
    """Return the output of a program. Fails the test if the program fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="package")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel, built without network from a copy, so that no build/ is left in the sources."""
    source = tmp_path_factory.mktemp("source")

    def build(folder: Path) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        for package in PACKAGES:
            shutil.copytree(REPOSITORY / package, source / package, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(REPOSITORY / name, source / name)
        options = ["--no-deps", "--no-build-isolation", "--no-index", "-w", folder]
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, source)

    (path,) = make_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return path


def link_what_is_asked_for(package: metadata.Distribution, extra: str, into: Path) -> None:
    """Link the requirements of a package from this environment, recursively."""
    for line in package.requires or []:
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            found = metadata.distribution(wanted.name)
            tops = {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}
            new = [top for top in tops if not (into / top).exists()]
            for top in new:
                (into / top).symlink_to(Path(str(found.locate_file(top))))
            if new:
                for more in wanted.extras or {""}:
                    link_what_is_asked_for(found, more, into)


@pytest.fixture(scope="package")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
    (packages,) = folder.glob("lib/*/site-packages")
    (information,) = packages.glob("rse_transcribe-*.dist-info")
    link_what_is_asked_for(metadata.Distribution.at(information), "", packages)
    return folder / "bin"
