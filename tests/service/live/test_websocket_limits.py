"""The live endpoint: its limits in time, in size and in number."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from service.protocol.faults import CloseCode
from tests.service.apps import (
    ADDRESS,
    PITCHES,
    RATE_HZ,
    START,
    begin,
    check_notes,
    converse,
    hear,
    melody,
    midi_pitches,
    of_type,
    pcm16,
    send,
    serving,
    stop,
)


def test_idle_clients_are_told_and_keep_their_notes() -> None:
    with serving(idle_timeout_s=0.2, progress_interval_ms=100) as (client, _):
        assert client.portal is not None
        talk = partial(converse, client.app, json.dumps(START), pcm16(melody()), leaves=False)
        messages, code = client.portal.call(talk)
    (error,) = of_type(messages, "error")
    assert (error["code"], error["retryable"]) == ("idle_timeout", True)
    assert check_notes(messages) == PITCHES
    assert code == CloseCode.TIMEOUT


def test_a_client_that_never_starts_is_sent_away() -> None:
    with serving(idle_timeout_s=0.2, progress_interval_ms=100) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            messages, code = hear(socket)
    assert [m["code"] for m in messages] == ["idle_timeout"]
    assert code == CloseCode.TIMEOUT


def test_a_session_has_an_end_in_audio() -> None:
    limit_s = 60  # of time too, in which the audio must have come
    with serving(max_session_s=limit_s, idle_timeout_s=limit_s, max_pace=1000) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            send(socket)
            for _ in range(limit_s):
                socket.send_bytes(bytes(2 * RATE_HZ))
            messages, code = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["session_too_long"]
    assert check_notes(messages) == PITCHES
    assert limit_s - 1 < messages[-1]["totals"]["audio_s"] <= limit_s
    assert code == CloseCode.TIMEOUT


def test_a_session_has_an_end_in_time() -> None:
    # Its start is there with the connection: on a slow machine it could come after the end.
    start = f"{ADDRESS}?encoding=pcm_s16le&sample_rate={RATE_HZ}"
    with serving(max_session_s=2, idle_timeout_s=2, progress_interval_ms=100) as (client, _):
        with client.websocket_connect(start) as socket:
            heard: list[dict[str, Any]] = []
            while not of_type(heard, "done"):
                socket.send_json({"type": "keepalive"})
                socket.send_bytes(bytes(200))
                heard.append(socket.receive_json())  # progress paces this loop
            code = of_type(heard, "error")[0]["code"]
    assert code == "session_too_long"


def test_too_many_notes_end_the_session_with_those_kept() -> None:
    with serving(max_notes=1) as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        send(socket)
        messages, code = stop(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["too_many_notes"]
    check_notes(messages)
    assert midi_pitches(messages[-1]["midi_base64"])[0] == PITCHES[0]
    assert code == CloseCode.TOO_BIG
