"""Fixtures of all tests, and isolation from settings, proxies, terminals and random numbers."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.paths import SHARED

if TYPE_CHECKING:
    from tests.service.servers import RunningServer

# Set this before torch is imported, also for child processes. If other work occupies a core,
# torch's threads wait for each other, and a test of 1 s takes a minute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Ignore settings of a service on this machine.
for _name in set(os.environ) - {"RSE_REQUIRE_SYSTEM", "RSE_FUZZ_INPUTS"}:
    if _name.startswith("RSE_"):
        del os.environ[_name]
# Programs format their output for a pipe of 80 columns, not for the current terminal.
for _name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
# Measuring the capacity, as RSE_MAX_SESSIONS=auto does, takes seconds.
os.environ.update(COLUMNS="80", LINES="25", RSE_MAX_SESSIONS="12")
# Bypass proxies between two programs on this machine.
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, [os.environ.get(_name), "127.0.0.1,localhost"]))

# Background jobs of a shell ignore Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples have no deadline, because a busy machine may be slow. All runs use the same examples, so
# that a failure always comes from the change under test. With RSE_FUZZ_INPUTS, as in `make fuzz`,
# each run uses different examples.
hypothesis.settings.register_profile(
    "patient",
    max_examples=50,
    deadline=None,
    derandomize=os.environ.get("RSE_FUZZ_INPUTS", "0") == "0",
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


SLOWEST = (
    *("clients", "training", "packaging", "test_nginx.py", "service/cluster", "service/page"),
    *("service/test_real_server.py", "service/workers", "service/upload", "model/test_export_onnx"),
)
"""Paths of the slowest tests. They run first, so that all processes finish at the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent

    def position(item: pytest.Item) -> int:
        path = item.path.relative_to(root).as_posix()
        return next((n for n, name in enumerate(SLOWEST) if path.startswith(name)), len(SLOWEST))

    items.sort(key=position)


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """Seed torch, so that random numbers do not depend on earlier tests."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def require_system(name: str) -> str:
    """Return the path of the program ``name``, or the name of the system library ``lib...``.

    If it is missing, skip the calling test, or fail it with ``RSE_REQUIRE_SYSTEM=1``.
    """
    path = find_library(name.removeprefix("lib")) if name.startswith("lib") else shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not installed on this machine"
    if os.environ.get("RSE_REQUIRE_SYSTEM", "0") not in ("", "0"):
        pytest.fail(message)
    pytest.skip(message)


def _run_server(folder: Path, *heads: str) -> "Iterator[RunningServer]":
    from tests.service.servers import TONES, server_starter

    with server_starter(folder) as start:
        yield start(*TONES, *heads)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningServer]":
    """Service in a separate process with a model of pure tones. Tests must not change its state."""
    yield from _run_server(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningServer]":
    """Server like ``server`` whose model also classifies instruments, by loudness."""
    yield from _run_server(tmp_path_factory.mktemp("server"), "all")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of recordings and oracles next to the repository (or ``$SHARED``)."""
    if not SHARED.is_dir():
        pytest.skip(f"no recordings or oracles at {SHARED}")
    return SHARED
