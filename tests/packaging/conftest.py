"""Fixtures that build the wheel and install it with its requirements only."""

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
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="package")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel, built without network. It is built from a copy, because a build writes build/."""
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


@pytest.fixture(scope="package")
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
