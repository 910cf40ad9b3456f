"""Tests that the event loop waits neither for the model nor for notes that are validated or sent to
another process."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from service.notes.events import Note
from service.upload.score import ScoreRequest
from tests.fakes import GatedTranscriber
from tests.service.apps import ADDRESS, START, of_type, send, serving, sound_file, stop


def test_requests_are_served_while_the_model_runs() -> None:
    model = GatedTranscriber()
    model.gate.set()
    with serving(model) as (client, _), ThreadPoolExecutor(1) as pool:
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


def test_requests_are_served_while_notes_are_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = Event(), Event()
    validate = ScoreRequest.model_validate_json

    def wait_and_validate(data: bytes) -> ScoreRequest:
        entered.set()
        assert gate.wait(30)
        return validate(data)

    monkeypatch.setattr(ScoreRequest, "model_validate_json", wait_and_validate)
    body = {"notes": [{"onset_s": 1, "offset_s": 2, "pitch": 60}]}
    with serving() as (client, _), ThreadPoolExecutor(1) as pool:
        score = pool.submit(client.post, "/score?form=musicxml", json=body)
        assert entered.wait(30)
        assert client.get("/healthz").status_code == 200
        assert not score.done()
        gate.set()
        assert score.result(60).status_code == 200


def test_requests_are_served_while_notes_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = Event(), Event()
    state_of = Note.__getstate__

    def wait_and_return_state(note: Note) -> Any:
        entered.set()
        assert gate.wait(30)
        return state_of(note)

    monkeypatch.setattr(Note, "__getstate__", wait_and_return_state)
    with serving() as (client, _), ThreadPoolExecutor(1) as pool:
        files = {"file": sound_file()}
        upload = pool.submit(client.post, "/transcribe?answer=musicxml", files=files)
        assert entered.wait(60)
        try:
            assert client.get("/healthz").status_code == 200
            assert not upload.done()
        finally:
            gate.set()
        assert upload.result(60).status_code == 200
