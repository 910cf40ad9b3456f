"""A worker that hangs: noticed, reported, replaced; the health of the service meanwhile."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from service.app import create_app
from service.engine.engine import Engine
from service.settings import Settings
from tests.fakes import GatedTranscriber
from tests.service.apps import (
    ADDRESS,
    begin,
    check_notes,
    client_for,
    hear,
    melody,
    pcm16,
    state_of,
    transcribe,
    wait_for,
)

PATIENCE_S = 60.0
FAILURES = 2


class Stage:
    """A service whose models are made one after the other."""

    def __init__(self, client: TestClient, models: list[GatedTranscriber]) -> None:
        self.client = client
        self.models = models

    def look(self) -> Future[None]:
        """Has the watchdog look once the worker has been silent for long."""
        engine = state_of(self.client).slot.engine
        assert isinstance(engine, Engine)
        engine._beats.update({number: -math.inf for number in engine._beats})
        assert self.client.portal is not None
        looking: Future[None] = self.client.portal.start_task_soon(state_of(self.client).slot.look)
        return looking


@contextmanager
def stage(go_on: threading.Event) -> Iterator[Stage]:
    """go_on: what the second model's loading waits for, before it fails twice."""
    models: list[GatedTranscriber] = []
    to_fail = iter(range(FAILURES))

    def load(name: str, device: str) -> GatedTranscriber:
        if models:
            assert go_on.wait(PATIENCE_S)
            if next(to_fail, None) is not None:
                raise OSError("the disk is away")
        models.append(GatedTranscriber())
        models[-1].gate.set()
        return models[-1]

    settings = Settings(hang_timeout_s=3600, allowed_hosts=("testserver",))
    app = create_app(settings, load_model=load)
    with client_for(app, raise_server_exceptions=False) as client:
        made = Stage(client, models)
        wait_for(client, "/readyz", 200)
        try:
            yield made
        finally:
            for model in models:
                model.gate.set()


def test_sessions_of_a_hanging_engine_get_an_error_and_the_next_is_served() -> None:
    go_on = threading.Event()
    with stage(go_on) as here:
        transcribe(here.client)
        with here.client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            socket.send_bytes(pcm16(melody()[:22_050]))
            socket.send_text('{"type": "flush", "id": "a"}')
            heard: list[dict[str, Any]] = []
            while not heard or heard[-1]["type"] != "flushed":
                heard.append(socket.receive_json())
            here.models[0].close_gate()
            socket.send_bytes(pcm16(melody()[22_050:]))
            assert here.models[0].entered.wait(PATIENCE_S)
            looking = here.look()
            messages, code = hear(socket)
        assert code == 1011
        (error,) = [message for message in messages if message["type"] == "error"]
        assert (error["code"], error["retryable"]) == ("internal", True)
        assert messages[-1]["type"] == "done"
        check_notes(heard + messages)  # every note has its end

        wait_for(here.client, "/healthz", 503)
        assert here.client.get("/readyz").status_code == 503
        assert here.client.get("/healthz").json()["code"] == "not_ready"
        go_on.set()
        looking.result(PATIENCE_S)
        for _ in range(FAILURES):  # and is tried again
            assert here.client.get("/healthz").status_code == 503
            here.look().result(PATIENCE_S)
        wait_for(here.client, "/healthz", 200)
        wait_for(here.client, "/readyz", 200)
        transcribe(here.client)
        assert "rse_engine_restarts_total 1.0" in here.client.get("/metrics").text
        assert len(here.models) == 2
