"""The service asks nobody: no connection leaves it, whatever it is used for."""

from __future__ import annotations

import io
import json
import socket

import pytest
import soundfile

from tests.service.apps import RATE_HZ, START, hear, melody, send_melody, serving


def test_no_name_is_looked_up_and_no_connection_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        asked.append(arguments)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("192.0.2.1", 80))
    asked.clear()

    recording = io.BytesIO()
    soundfile.write(recording, melody(), RATE_HZ, format="FLAC")
    with serving() as (client, _):
        for path in ("/", "/info", "/metrics", "/openapi.json", "/healthz"):
            assert client.get(path).status_code == 200
        uploaded = client.post("/transcribe", files={"file": ("a.flac", recording.getvalue())})
        assert uploaded.status_code == 200
        with client.websocket_connect("/ws/transcribe") as live:
            live.send_text(json.dumps(START))
            send_melody(live)
            live.send_text('{"type": "stop"}')
            assert hear(live)[1] == 1000
    assert asked == []
