"""The live endpoint: bad input, and what fails besides, told and survived."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from service.protocol.faults import CloseCode
from tests.service.apps import (
    ADDRESS,
    PITCHES,
    START,
    begin,
    check_notes,
    hear,
    melody,
    midi_pitches,
    of_type,
    send,
    serving,
    transcribe,
)


def test_a_bad_beginning_is_told_and_closed_and_no_path_with_it() -> None:
    with serving(model="/secret/weights.safetensors") as (client, model):
        with client.websocket_connect(ADDRESS) as socket:
            socket.send_json({**START, "model": "other"})
            (error,), close = hear(socket)
        transcribe(client)
    assert (error["seq"], error["type"], error["code"]) == (0, "error", "unknown_model")
    assert not error["retryable"]
    assert "secret" not in error["message"]
    assert model.config.name in error["message"]
    assert close == CloseCode.BAD_REQUEST


def test_a_fault_before_ready_is_told_and_closed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    with monkeypatch.context() as patch:
        patch.setattr("service.live.opening.TranscriptionSession", fail)
        with client.websocket_connect(ADDRESS) as socket:
            socket.send_json(START)
            messages, close = hear(socket)
    assert [(m["seq"], m["type"], m["code"]) for m in messages] == [(0, "error", "internal")]
    assert "secret" not in messages[0]["message"]
    assert close == CloseCode.INTERNAL
    transcribe(client)


@pytest.mark.parametrize(
    ("fault", "code", "close"),
    [
        (json.dumps(START), "already_started", CloseCode.BAD_REQUEST),
        ("\N{EIGHTH NOTE}" * (2**20 // 3 + 1), "message_too_big", CloseCode.TOO_BIG),
    ],
)
def test_a_fault_in_a_session_loses_nothing(
    client: TestClient, fault: str, code: str, close: int
) -> None:
    with client.websocket_connect(ADDRESS) as socket:
        begin(socket, encoding="pcm_f32le")
        send(socket, melody().astype("<f4").tobytes())
        socket.send_text(fault)
        messages, closed = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == [code]
    assert check_notes(messages) == PITCHES
    done = messages[-1]
    assert (done["type"], done["reason"]) == ("done", "error")
    assert midi_pitches(done["midi_base64"]) == PITCHES
    assert closed == close
    transcribe(client)


def test_a_client_that_vanishes_frees_its_place() -> None:
    with serving(max_sessions=1) as (client, _):
        for _ in range(3):
            with client.websocket_connect(ADDRESS) as socket:
                begin(socket)
                send(socket)
            # leaving the block closes the socket in mid-performance
        assert client.get("/readyz").json()["sessions"] == 0
        transcribe(client)
