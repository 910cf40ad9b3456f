"""The wheel carries all that a service needs, the base install asks for no more than that, and what
the READMEs show runs from an installed wheel."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
import soundfile

from tests.conftest import REPOSITORY
from tests.fakes import play

PACKAGES = ("service", "model", "training", "clients")
# Beside *.py: (folder, pattern) of what must travel in the wheel.
DATA = (
    ("model/weights", "*"),
    ("service/static", "**/*"),
    ("service", "*.md"),
    ("model", "*.md"),
    ("training", "*.md"),
    ("service/library/rse_transcribe", "py.typed"),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, so that no build/ is left in the sources."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, source / package, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network."""
    out = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, source]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", *build)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and its dependencies from this one."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/*/site-packages")
    # Behind its own packages; an editable install of this one is not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    programs = environment / "bin"
    install = ["install", "--no-deps", "--no-index", "--ignore-installed", wheel]
    run(sys.executable, "-m", "pip", "--python", programs / "python", *install)
    return programs


def run(*command: object, folder: Path | None = None, **environment: str) -> str:
    """What a program says; fails the test where it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    sources = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    data = [path for folder, pattern in DATA for path in (REPOSITORY / folder).glob(pattern)]
    expected = {
        path.relative_to(REPOSITORY).as_posix().removeprefix("service/library/")
        for path in [*sources, *data]
        if path.is_file()
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    assert expected - held == set()


def test_wheel_holds_no_tests_and_little_else(wheel: Path) -> None:
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} <= {
        *PACKAGES,
        "rse_transcribe",
    }


def test_version_is_that_of_the_project_file() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert metadata.version("rse-transcribe") == version


def test_every_direct_dependency_is_pinned() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    extras = dict(project["optional-dependencies"])
    del extras["gpu"]  # CUDA builds of torch name the one release of Triton that fits
    groups = [project["dependencies"], *extras.values()]
    wanted = {
        re.split(r"[\[>]", requirement)[0].strip().lower().replace("_", "-")
        for group in groups
        for requirement in group
        if not requirement.startswith("rse-transcribe")
    }
    assert wanted - pinned == set()


# Modules that the clients, cluster and training extras bring and a base install lacks.
EXTRAS = (
    "clients",
    "training",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "ray",
    "rich",
    "sounddevice",
    "rtmidi",
    "matplotlib",
    "mir_eval",
    "pretty_midi",
    "scipy",
    "sklearn",
    "symusic",
    "tensorboard",
    "tyro",
)
IMPORT_ALL = """
import importlib, pkgutil, sys

blocked = set(sys.argv[2:])

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is not there", name=name)

sys.meta_path.insert(0, Blocker())
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    # The kernel is looked for on a GPU alone, where there is Triton; the others have an extra.
    needs_more = (
        *(".import_tf", ".tf_checkpoint", ".export_onnx"),
        *(".triton_switch", ".deployment", ".drain"),
    )
    if not module.name.endswith(("__main__", *needs_more)):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize(
    ("package", "absent"),
    [
        ("service", EXTRAS),
        ("rse_transcribe", [module for module in EXTRAS if module != "clients"]),
        ("model", (*EXTRAS, "service", "fastapi", "pydantic", "soxr", "soundfile")),
        ("clients", ("training", "torch", "fastapi", "soxr")),
    ],
)
def test_package_imports_without(package: str, absent: Sequence[str]) -> None:
    library = str(REPOSITORY / "service" / "library")
    run(
        *(sys.executable, "-c", IMPORT_ALL, package, *absent),
        folder=REPOSITORY,
        PYTHONPATH=library,
    )


def test_the_index_would_take_wheel_and_sdist(source: Path, wheel: Path, tmp_path: Path) -> None:
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, tmp_path, folder=source)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert (
        run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist).count("PASSED") == 2
    )
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"service/library/rse_transcribe/py.typed", "model/weights/live.safetensors"} <= names


def shown(kind: str) -> list[str]:
    """Blocks of code of this kind in the READMEs."""
    texts = [
        (REPOSITORY / name).read_text() for name in ("README.md", "clients/examples/README.md")
    ]
    return re.findall(rf"^```{kind}\n(.*?)^```$", "".join(texts), re.M | re.S)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings of the names that the READMEs use."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "album").mkdir()
    for name in ("song.wav", "song.flac", "album/first.wav", "take-1.wav"):
        soundfile.write(folder / name, play([(69, 0.2, 0.8)], 1.0, 22_050), 22_050)
    return folder


def test_what_the_readmes_show_runs(installed: Path, home: Path) -> None:
    shell = {"PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "MPLBACKEND": "Agg"}
    snippets = "".join(shown("python"))
    assert "rse_transcribe" in snippets
    run("python", "-W", "error", "-c", snippets, folder=home, PYTHONPATH="", **shell)
    lines = [line.partition("  #")[0].rstrip() for line in "".join(shown("console")).splitlines()]
    # An export takes long: tests of the graphs begin with one.
    commands = [line for line in dict.fromkeys(lines) if "export_onnx" not in line]
    assert any(line.startswith("rse-transcribe") for line in commands)
    run("bash", "-euc", "\n".join(commands), folder=home, PYTHONPATH="", **shell)


def test_an_installed_wheel_is_all_it_takes(installed: Path, home: Path) -> None:
    python = [installed / "python", "-c"]
    where = run(*python, "import rse_transcribe; print(rse_transcribe.__file__)", folder=home)
    assert where.startswith(str(installed.parent))
    three_lines = """if True:
        import rse_transcribe as r
        t = r.transcribe("song.flac"); t.save("x.mid")
        print(len(t.notes))
    """
    notes = run(*python, three_lines, folder=home)
    said = run(installed / "rse-transcribe", "song.flac", "-o", "y.mid", folder=home)
    assert said == f"song.flac: {notes.strip()} notes -> y.mid\n"
    assert (home / "x.mid").read_bytes() == (home / "y.mid").read_bytes()
