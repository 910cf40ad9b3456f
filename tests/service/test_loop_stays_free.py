"""Tests that the event loop waits neither for the model nor for notes that are validated or sent to
another process."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from starlette.responses import JSONResponse

from service.notes.events import Note
from service.upload.score import ScoreRequest
from tests.fakes import GatedTranscriber
from tests.service.apps import ADDRESS, START, of_type, send, serving, sound_file, stop


def test_requests_are_served_while_the_model_runs() -> None:
    model = GatedTranscriber()
    model.gate.set()
    with serving(model) as client, ThreadPoolExecutor(1) as pool:
        model.close_gate()
        upload = pool.submit(client.post, "/transcribe", files={"file": sound_file()})
        try:
            assert model.entered.wait(60)
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 200
            with client.websocket_connect(ADDRESS) as socket:
                socket.send_json(START)  # the handshake needs no model
                send(socket)
                assert not upload.done()
                model.gate.set()
                messages, _code = stop(socket)
            assert messages[0]["type"] == "ready"
            assert of_type(messages, "note_on")
            assert upload.result(60).status_code == 200
        finally:
            model.gate.set()


def hold(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> tuple[Event, Event]:
    """Make the calls of a method wait for the second event. They set the first event."""
    entered, gate = Event(), Event()
    method = getattr(owner, name)

    def wait_and_call(*arguments: Any) -> Any:
        entered.set()
        assert gate.wait(30)
        return method(*arguments)

    monkeypatch.setattr(owner, name, wait_and_call)
    return entered, gate


def test_requests_are_served_while_notes_are_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = hold(monkeypatch, ScoreRequest, "model_validate_json")
    body = {"notes": [{"onset_s": 1, "offset_s": 2, "pitch": 60}]}
    with serving() as client, ThreadPoolExecutor(1) as pool:
        score = pool.submit(client.post, "/score?form=musicxml", json=body)
        assert entered.wait(30)
        assert client.get("/healthz").status_code == 200
        assert not score.done()
        gate.set()
        assert score.result(60).status_code == 200


def test_score_is_serialised_in_the_process_that_renders_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(JSONResponse, "render", None)  # it would block the event loop
    body = {"notes": [{"onset_s": 1, "offset_s": 2, "pitch": 60}]}
    with serving() as client:
        assert client.post("/score", json=body).json()["svg"].startswith("<svg")


def test_requests_are_served_while_notes_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = hold(monkeypatch, Note, "__getstate__")
    with serving() as client, ThreadPoolExecutor(1) as pool:
        files = {"file": sound_file()}
        upload = pool.submit(client.post, "/transcribe?answer=musicxml", files=files)
        assert entered.wait(60)
        try:
            assert client.get("/healthz").status_code == 200
            assert not upload.done()
        finally:
            gate.set()
        assert upload.result(60).status_code == 200
