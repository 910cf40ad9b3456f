"""Fixtures of all tests: the async backend, and what a test needs from outside the repository."""

import os
import shutil
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path

import hypothesis
import pytest

# Before torch is imported. Threads that wait for one another lose most of their time where other
# work holds a core: a test of a second then takes a minute. Processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine takes longer over an example now and then: that is no fault of the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def require_system(name: str) -> str:
    """The path of program ``name``, or the name of library ``lib...``, of the operating system.

    Skips the calling test where it is missing; fails it under ``RSE_REQUIRE_SYSTEM=1``, as in
    continuous integration, where a missing package is a mistake of the set-up.
    """
    found = find_library(name.removeprefix("lib")) if name.startswith("lib") else shutil.which(name)
    if found is not None:
        return found
    message = f"{name} is not installed on this machine"
    if os.environ.get("RSE_REQUIRE_SYSTEM", "0") not in ("", "0"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(name="require_system", scope="session")
def _require_system() -> Callable[[str], str]:
    """:func:`require_system`, for tests that prefer a fixture to an import."""
    return require_system


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of recordings and oracles beside the repository (or ``$SHARED``)."""
    folder = Path(os.environ.get("SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no recordings or oracles at {folder}")
    return folder
