"""Shared fixtures: a model in this process, and real servers in separate processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.engine.local import LocalEngine
from tests.fakes import FakeTranscriber
from tests.service.apps import serving
from tests.service.servers import StartServer, server_starter


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Engine with the model of pure tones."""
    with LocalEngine(FakeTranscriber()) as engine:
        yield engine


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """Client of an application with the model of pure tones and the default limits."""
    with serving() as client:
        yield client


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Function that starts servers for one test, each with its own settings."""
    with server_starter(tmp_path) as start:
        yield start
