"""The wheel, and environments that have nothing but it and what it asks for."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

PACKAGES = ("service", "model", "training", "clients")


def run(*command: object, folder: Path | None = None, **environment: str) -> str:
    """What a program says; fails the test where it fails."""
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
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, so that no build/ is left in the sources."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    return source


@pytest.fixture(scope="package")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network."""
    out = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, source]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", *build)
    (path,) = out.glob("*.whl")
    return path


def install(environment: Path, requirement: str) -> None:
    """With its dependencies, of the versions that are tested; skips without the package index."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", environment / "bin" / "python"),
            *("install", "--quiet", "--disable-pip-version-check", "--no-compile"),
            *("--constraint", REPOSITORY / "constraints.txt", requirement),
        ],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    if done.returncode and os.environ.get("RSE_REQUIRE_SYSTEM", "0") in ("", "0"):
        pytest.skip("pip cannot install the dependencies of the wheel on this machine")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="package")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment where the wheel has been installed, and nothing else.

    Takes some twenty seconds of a core: torch has many files.
    """
    environment = tmp_path_factory.mktemp("bare")
    venv.create(environment, with_pip=False, symlinks=True)
    install(environment, str(wheel))
    return environment / "bin"


@pytest.fixture(scope="package")
def extended(bare: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the extra ``library`` as well; the rest is that of
    ``bare``, which stays as it is."""
    environment = tmp_path_factory.mktemp("extended")
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/*/site-packages")
    (base,) = bare.parent.glob("lib/*/site-packages")
    (packages / "base.pth").write_text(f"{base}\n")
    install(environment, f"{wheel}[library]")
    return environment / "bin"
