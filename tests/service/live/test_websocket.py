"""The live endpoint: the whole conversation."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from service.protocol.faults import CloseCode
from tests.service.apps import (
    ADDRESS,
    DURATION_S,
    MELODY,
    PITCHES,
    RATE_HZ,
    SAMPLES,
    begin,
    check_notes,
    midi_pitches,
    of_type,
    send_melody,
    serving,
    stop,
)


def test_a_whole_session(client: TestClient) -> None:
    with client.websocket_connect(ADDRESS) as socket:
        ready = begin(socket, lookahead_ms=50, block_frames=2)
        send_melody(socket)
        messages, code = stop(socket)
    assert code == CloseCode.NORMAL
    assert [m["seq"] for m in [ready, *messages]] == list(range(len(messages) + 1))
    assert check_notes(messages) == PITCHES
    done = messages[-1]
    assert (done["type"], done["reason"]) == ("done", "stop")
    assert done["totals"]["notes"] == len(MELODY)
    assert done["totals"]["received_samples"] == SAMPLES
    assert done["totals"]["dropped_samples"] == 0
    assert done["totals"]["audio_s"] == pytest.approx(DURATION_S)
    assert midi_pitches(done["midi_base64"]) == PITCHES


def test_ready_states_the_model_the_delay_and_the_limits() -> None:
    with serving(max_session_s=100, idle_timeout_s=5) as (client, model):
        with client.websocket_connect(ADDRESS) as socket:
            ready = begin(socket, lookahead_ms=100, block_frames=4)
        with client.websocket_connect(ADDRESS) as socket:
            centre = begin(socket, mode="centre")
    hop_ms = 1000 * ready["hop_samples"] / ready["sample_rate_hz"]
    assert ready["model"] == model.config.name
    assert ready["sample_rate_hz"] == model.config.sample_rate
    assert ready["frame_rate_hz"] == pytest.approx(1000 / hop_ms)
    assert ready["lookahead_ms"] == pytest.approx(8 * hop_ms, abs=1e-3)  # 100 ms in whole hops
    assert ready["delay_ms"] >= ready["lookahead_ms"] + 3 * hop_ms
    assert ready["note_off_delay_ms"] >= ready["delay_ms"]
    assert ready["limits"] == {
        "max_message_bytes": 1024 * 1024,
        "max_session_s": 100,
        "idle_timeout_s": 5,
        "max_buffered_ms": 2000,
    }
    assert (centre["mode"], centre["block_frames"]) == ("centre", 1)
    assert centre["lookahead_ms"] == pytest.approx(32 * hop_ms, abs=1e-3)
    assert centre["session_id"] != ready["session_id"]


def test_a_raw_client_starts_by_its_address(client: TestClient) -> None:
    query = f"?encoding=pcm_s16le&sample_rate={RATE_HZ}&lookahead_ms=50"
    with client.websocket_connect(ADDRESS + query) as socket:
        send_melody(socket)  # at once, without waiting for ready
        messages, code = stop(socket)
    assert messages[0]["type"] == "ready"
    assert check_notes(messages) == PITCHES
    assert code == CloseCode.NORMAL


def test_no_audio_at_all_is_an_empty_performance(client: TestClient) -> None:
    with client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        socket.send_bytes(b"")
        messages, code = stop(socket)
    assert code == CloseCode.NORMAL
    assert messages[-1]["totals"] == {
        "notes": 0,
        "frames": 0,
        "audio_s": 0,
        "received_samples": 0,
        "dropped_samples": 0,
    }
    assert midi_pitches(messages[-1]["midi_base64"]) == []


def test_flush_is_answered_behind_the_notes_before_it(client: TestClient) -> None:
    with client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        send_melody(socket)
        socket.send_json({"type": "flush", "id": "here"})
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] != "flushed":
            messages.append(socket.receive_json())
        stop(socket)
    assert messages[-1]["id"] == "here"
    assert messages[-1]["frame"] > 86 * (DURATION_S - 0.5)
    assert PITCHES[0] in [m["pitch"] for m in of_type(messages, "note_on")]


def test_progress_acknowledges_the_audio() -> None:
    with serving(progress_interval_ms=20) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            send_melody(socket)
            progress: dict[str, Any] = {"received_samples": 0}
            while progress["received_samples"] < SAMPLES or progress["behind_ms"]:
                message = socket.receive_json()
                progress = message if message["type"] == "progress" else progress
            stop(socket)
    assert progress["received_samples"] == SAMPLES
    assert progress["time_s"] == pytest.approx(progress["frames"] * 128 / 11025, abs=1e-5)
