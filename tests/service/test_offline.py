"""The service asks nobody: no connection leaves it, whatever it is used for."""

import socket

import pytest

from tests.service.apps import serving, sound_file, transcribe


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

    with serving() as (client, _):
        for path in ("/", "/info", "/metrics", "/openapi.json", "/healthz"):
            assert client.get(path).status_code == 200
        uploaded = client.post("/transcribe", files={"file": sound_file(kind="FLAC")})
        assert uploaded.status_code == 200
        transcribe(client)
    assert asked == []
