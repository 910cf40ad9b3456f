"""The wheel carries all that a service needs, and the base install asks for no more than that."""

import re
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

from tests.packaging.conftest import PACKAGES, run
from tests.paths import REPOSITORY

# Beside *.py: (folder, pattern) of what must travel in the wheel.
DATA = (
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


def test_wheel_holds_every_module_and_data_file_and_no_tests(wheel: Path) -> None:
    sources = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    data = [path for folder, pattern in DATA for path in (REPOSITORY / folder).glob(pattern)]
    expected = {
        path.relative_to(REPOSITORY).as_posix().removeprefix("service/library/")
        for path in [*sources, *data]
        if path.is_file()
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert expected - held == set()
    top = {name.split("/")[0] for name in held if ".dist-info/" not in name}
    assert top == {*PACKAGES, "rse_transcribe"}


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        re.split(r"[\[>]", requirement)[0].strip().lower().replace("_", "-")
        for requirement in chain(project["dependencies"], *extras.values())
    }
    pins = (REPOSITORY / "constraints.txt").read_text().lower().replace("_", "-")
    assert wanted - {"rse-transcribe"} <= set(re.findall(r"^([\w.-]+)==", pins, re.MULTILINE))


IMPORT_ALL = """
import importlib, pkgutil

for name in ("service", "rse_transcribe", "model"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        needs_more = "import_tf tf_checkpoint export_onnx cluster".split()  # an extra
        if module.name.rpartition(".")[2] not in ("__main__", *needs_more):
            importlib.import_module(module.name)
try:
    import model.export_onnx
except SystemExit as end:
    print(end)
"""


def test_every_module_imports_in_a_base_install_or_names_its_extra(
    bare: Path, tmp_path: Path
) -> None:
    said = run(bare / "python", "-c", IMPORT_ALL, folder=tmp_path)
    assert said == "onnx is missing: pip install 'rse-transcribe[onnx]'\n"


def test_the_microphone_starts_without_torch() -> None:
    code = "import sys, clients.microphone; print(*(sys.modules.keys() & {'torch', 'fastapi'}))"
    assert run(sys.executable, "-c", code, folder=REPOSITORY).split() == []
