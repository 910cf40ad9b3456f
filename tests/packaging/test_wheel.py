"""Tests of the wheel's contents and of dependencies."""

import re
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

from tests.packaging.conftest import PACKAGES, run
from tests.paths import REPOSITORY

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


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = {
        re.split(r"[\[>]", requirement)[0].strip().lower().replace("_", "-")
        for requirement in chain(project["dependencies"], *extras.values())
    }
    pins = (REPOSITORY / "constraints.txt").read_text().lower().replace("_", "-")
    assert requirements - {"rse-transcribe"} <= set(re.findall(r"^([\w.-]+)==", pins, re.MULTILINE))


def test_the_microphone_client_does_not_import_torch() -> None:
    code = "import sys, clients.microphone; print(*(sys.modules.keys() & {'torch', 'fastapi'}))"
    assert run(sys.executable, "-c", code, folder=REPOSITORY).split() == []
