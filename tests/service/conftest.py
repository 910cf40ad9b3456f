"""What tests share: an engine in this process, and real servers on free ports in theirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.engine.engine import Engine
from tests.fakes import FakeTranscriber
from tests.service.apps import serving
from tests.service.servers import StartServer, server_starter


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine of the model that hears pure tones, shared by the tests of a module."""
    with Engine(FakeTranscriber()) as engine:
        yield engine


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of an application on that model, with the default limits except that of requests."""
    with serving(max_request_burst=1_000_000) as (client, _):
        yield client


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Servers of one test, with settings of its own."""
    with server_starter(tmp_path) as start:
        yield start
