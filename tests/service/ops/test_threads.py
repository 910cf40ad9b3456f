"""Threads that nobody waits for: the end of a service whose model is still being loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.fakes import FakeTranscriber

PATIENCE_S = 60.0


class Loading:
    """A model whose loading takes until it is let go."""

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = (threading.Event() for _ in range(3))
        self.threads: list[threading.Thread] = []

    def __call__(self, name: str, device: str) -> FakeTranscriber:
        self.threads.append(threading.current_thread())
        self.began.set()
        self.go_on.wait(2 * PATIENCE_S)
        self.ended.set()
        return FakeTranscriber()


@pytest.fixture
def loading() -> Iterator[Loading]:
    made = Loading()
    try:
        yield made
    finally:
        made.go_on.set()
        for thread in made.threads:
            thread.join(PATIENCE_S)  # none is cut off in the model, should this test be the last


def test_the_end_does_not_wait_for_a_model_that_is_being_loaded(loading: Loading) -> None:
    def load(name: str, device: str) -> FakeTranscriber:
        loading(name, device)
        raise OSError("nobody would close an engine of it")

    app = create_app(Settings(allowed_hosts=("testserver",)), load_model=load)
    with TestClient(app) as client:
        assert loading.began.wait(PATIENCE_S)
        assert client.get("/readyz").status_code == 503
        app.state.service.close_timeout_s = 0.01  # what a drain leaves for it
    assert not loading.ended.is_set()
