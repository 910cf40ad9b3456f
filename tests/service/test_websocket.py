"""The live endpoint: the whole conversation, every kind of bad input, every limit."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from service.app import create_app
from service.faults import CloseCode
from service.settings import Settings
from tests.fakes import FakeTranscriber
from tests.service.apps import (
    DURATION_S,
    MELODY,
    RATE_HZ,
    START,
    check_notes,
    chunks,
    hear,
    melody,
    midi_pitches,
    of_type,
    pcm16,
    serving,
)

PITCHES = [pitch for pitch, _, _ in MELODY]
ADDRESS = "/ws/transcribe"
SAMPLES = round(DURATION_S * RATE_HZ)


def begin(socket: WebSocketTestSession, **fields: Any) -> dict[str, Any]:
    socket.send_json({**START, **fields})
    ready: dict[str, Any] = socket.receive_json()
    assert ready["type"] == "ready", ready
    return ready


def send_melody(socket: WebSocketTestSession, size: int = 4000) -> None:
    for chunk in chunks(pcm16(melody()), size):
        socket.send_bytes(chunk)


async def _set(event: asyncio.Event) -> None:
    event.set()


def drain(client: TestClient) -> None:
    assert isinstance(client.app, FastAPI)
    assert client.portal is not None
    client.portal.call(_set, client.app.state.service.draining)


def transcribe(client: TestClient) -> list[dict[str, Any]]:
    """A whole session that must go well; its note messages."""
    with client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        send_melody(socket)
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
    assert code == CloseCode.NORMAL
    assert check_notes(messages) == PITCHES
    return of_type(messages, "note_on", "note_off")


def test_a_whole_session() -> None:
    with serving() as (client, _), client.websocket_connect(ADDRESS) as socket:
        ready = begin(socket, lookahead_ms=50, block_frames=2)
        send_melody(socket)
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
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


@pytest.mark.parametrize("size", [1, 333, 60_000])
def test_events_do_not_depend_on_the_sizes_of_messages(size: int) -> None:
    with serving() as (client, _):
        usual = transcribe(client)
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            # One byte at a time splits every sample; a tenth of the piece is enough of that.
            cut = SAMPLES // 10 * 2 if size == 1 else 2 * SAMPLES
            data = pcm16(melody())
            for chunk in chunks(data[:cut], size) + chunks(data[cut:]):
                socket.send_bytes(chunk)
            socket.send_json({"type": "stop"})
            messages, _ = hear(socket)
    notes = of_type(messages, "note_on", "note_off")
    assert [{**m, "seq": 0} for m in notes] == [{**m, "seq": 0} for m in usual]


def test_float_stereo_gives_the_same_notes() -> None:
    stereo = np.repeat(melody()[:, None], 2, axis=1).astype("<f4").tobytes()
    with serving() as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket, encoding="pcm_f32le", channels=2)
        for chunk in chunks(stereo, 16_001):
            socket.send_bytes(chunk)
        socket.send_json({"type": "stop"})
        messages, _ = hear(socket)
    assert check_notes(messages) == PITCHES
    assert messages[-1]["totals"]["received_samples"] == SAMPLES


def test_a_raw_client_starts_by_its_address() -> None:
    query = f"?encoding=pcm_s16le&sample_rate={RATE_HZ}&lookahead_ms=50"
    with serving() as (client, _), client.websocket_connect(ADDRESS + query) as socket:
        send_melody(socket)  # at once, without waiting for ready
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
    assert messages[0]["type"] == "ready"
    assert check_notes(messages) == PITCHES
    assert code == CloseCode.NORMAL


def test_no_audio_at_all_is_an_empty_performance() -> None:
    with serving() as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        socket.send_bytes(b"")
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
    assert code == CloseCode.NORMAL
    assert messages[-1]["totals"] == {
        "notes": 0,
        "frames": 0,
        "audio_s": 0,
        "received_samples": 0,
        "dropped_samples": 0,
    }
    assert midi_pitches(messages[-1]["midi_base64"]) == []


def test_flush_is_answered_behind_the_notes_before_it() -> None:
    with serving() as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        send_melody(socket)
        socket.send_json({"type": "flush", "id": "here"})
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] != "flushed":
            messages.append(socket.receive_json())
        socket.send_json({"type": "stop"})
        hear(socket)
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
            socket.send_json({"type": "stop"})
            hear(socket)
    assert progress["received_samples"] == SAMPLES
    assert progress["time_s"] == pytest.approx(progress["frames"] * 128 / 11025, abs=1e-5)


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b"\0\0\0\0", "not_started"),
        ('{"type": "stop"}', "not_started"),
        ('{"type": "flush", "id": "x"}', "not_started"),
        ('{"type": "keepalive"}', "not_started"),
        ("la la la", "bad_message"),
        ('{"type": "sing"}', "bad_message"),
        ('{"type": "start"}', "bad_start"),
        (json.dumps({**START, "encoding": "mp3"}), "unsupported_encoding"),
        (json.dumps({**START, "sample_rate": 4000}), "bad_sample_rate"),
        (json.dumps({**START, "sample_rate": 400_000}), "bad_sample_rate"),
        (json.dumps({**START, "channels": 6}), "bad_channels"),
        (json.dumps({**START, "lookahead_ms": 0}), "bad_lookahead"),
        (json.dumps({**START, "model": "other"}), "unknown_model"),
    ],
)
def test_a_bad_beginning_is_told_and_closed(first: str | bytes, code: str) -> None:
    with serving() as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            if isinstance(first, bytes):
                socket.send_bytes(first)
            else:
                socket.send_text(first)
            messages, close = hear(socket)
        assert [m["type"] for m in messages] == ["error"]
        assert messages[0]["code"] == code
        assert messages[0]["seq"] == 0
        assert messages[0]["message"]
        assert not messages[0]["retryable"]
        assert close == CloseCode.BAD_REQUEST
        transcribe(client)


def test_a_fault_before_ready_is_told_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    with serving() as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr("service.websocket.TranscriptionSession", fail)
            with client.websocket_connect(ADDRESS) as socket:
                socket.send_json(START)
                messages, close = hear(socket)
        assert [(m["seq"], m["type"], m["code"]) for m in messages] == [(0, "error", "internal")]
        assert "secret" not in messages[0]["message"]
        assert close == CloseCode.INTERNAL
        transcribe(client)


def test_the_path_of_the_weights_is_not_told() -> None:
    with serving(model="/secret/weights.safetensors") as (client, model):
        with client.websocket_connect(ADDRESS) as socket:
            socket.send_json({**START, "model": "other"})
            messages, _ = hear(socket)
    assert "secret" not in messages[0]["message"]
    assert model.config.name in messages[0]["message"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("?sample_rate=44100", "bad_start"),
        ("?encoding=pcm_s16le&sample_rate=1", "bad_sample_rate"),
        ("?encoding=opus&sample_rate=48000", "unsupported_encoding"),
        ("?encoding=pcm_s16le&sample_rate=48000&colour=red", "bad_start"),
    ],
)
def test_a_bad_address_is_told_and_closed(query: str, code: str) -> None:
    with serving() as (client, _), client.websocket_connect(ADDRESS + query) as socket:
        messages, close = hear(socket)
    assert [m["code"] for m in messages] == [code]
    assert close == CloseCode.BAD_REQUEST


NAN = np.full(64, np.nan, "<f4").tobytes()
INFINITE = np.full(64, np.inf, "<f4").tobytes()


@pytest.mark.parametrize(
    ("fault", "code", "close"),
    [
        ("la la la", "bad_message", CloseCode.BAD_REQUEST),
        (json.dumps(START), "already_started", CloseCode.BAD_REQUEST),
        ("x" * (2**20 + 1), "message_too_big", CloseCode.TOO_BIG),
        (bytes(2**20 + 1), "message_too_big", CloseCode.TOO_BIG),
        (NAN, "bad_audio", CloseCode.BAD_REQUEST),
        (INFINITE, "bad_audio", CloseCode.BAD_REQUEST),
    ],
)
def test_a_fault_in_a_session_loses_nothing(fault: str | bytes, code: str, close: int) -> None:
    with serving() as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket, encoding="pcm_f32le")
            for chunk in chunks(melody().astype("<f4").tobytes()):
                socket.send_bytes(chunk)
            if isinstance(fault, bytes):
                socket.send_bytes(fault)
            else:
                socket.send_text(fault)
            messages, closed = hear(socket)
        assert [m["code"] for m in of_type(messages, "error")] == [code]
        assert check_notes(messages) == PITCHES
        done = messages[-1]
        assert (done["type"], done["reason"]) == ("done", "error")
        assert midi_pitches(done["midi_base64"]) == PITCHES
        assert closed == close
        transcribe(client)


def test_an_odd_byte_at_the_end_is_told_and_the_rest_counts() -> None:
    with serving() as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        send_melody(socket)
        socket.send_bytes(b"\0")
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["odd_bytes"]
    assert check_notes(messages) == PITCHES
    assert messages[-1]["totals"]["received_samples"] == SAMPLES
    assert code == CloseCode.BAD_REQUEST


def test_a_client_that_vanishes_frees_its_place() -> None:
    with serving(max_sessions=1) as (client, _):
        for _ in range(3):
            with client.websocket_connect(ADDRESS) as socket:
                begin(socket)
                send_melody(socket)
            # leaving the block closes the socket in mid-performance
        assert client.get("/readyz").json()["sessions"] == 0
        transcribe(client)


def test_a_failing_model_ends_its_session_and_no_other() -> None:
    with serving() as (client, model):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            data = chunks(pcm16(melody()))
            for chunk in data[: len(data) // 2]:
                socket.send_bytes(chunk)
            socket.send_json({"type": "flush", "id": "half"})
            heard: list[dict[str, Any]] = []
            while not heard or heard[-1]["type"] != "flushed":
                heard.append(socket.receive_json())
            model.fail_next_batch = True
            for chunk in data[len(data) // 2 :]:
                socket.send_bytes(chunk)
            messages, code = hear(socket)
        assert [m["code"] for m in of_type(messages, "error")] == ["internal"]
        assert code == CloseCode.INTERNAL
        assert check_notes(heard + messages)[0] == PITCHES[0]
        assert messages[-1]["reason"] == "error"
        transcribe(client)


# -- limits ---------------------------------------------------------------------------------------


def test_idle_clients_are_told_and_keep_their_notes() -> None:
    with serving(idle_timeout_s=2) as (client, _), client.websocket_connect(ADDRESS) as socket:
        begin(socket)
        socket.send_bytes(pcm16(melody()))  # at once: a slow machine must not idle in between
        messages, code = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["idle_timeout"]
    assert of_type(messages, "error")[0]["retryable"]
    assert check_notes(messages) == PITCHES
    assert code == CloseCode.TIMEOUT


def test_a_client_that_never_starts_is_sent_away() -> None:
    with serving(idle_timeout_s=0.2, progress_interval_ms=100) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            messages, code = hear(socket)
    assert [m["code"] for m in messages] == ["idle_timeout"]
    assert code == CloseCode.TIMEOUT


def test_a_session_has_an_end_in_audio() -> None:
    limit_s = 20
    with serving(max_session_s=limit_s, idle_timeout_s=limit_s) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            send_melody(socket)
            for _ in range(limit_s):
                socket.send_bytes(bytes(2 * RATE_HZ))
            messages, code = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["session_too_long"]
    assert check_notes(messages) == PITCHES
    assert limit_s - 1 < messages[-1]["totals"]["audio_s"] <= limit_s
    assert code == CloseCode.TIMEOUT


def test_a_session_has_an_end_in_time() -> None:
    with serving(max_session_s=3, idle_timeout_s=3, progress_interval_ms=100) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
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
        send_melody(socket)
        socket.send_json({"type": "stop"})
        messages, code = hear(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["too_many_notes"]
    check_notes(messages)
    assert midi_pitches(messages[-1]["midi_base64"])[0] == PITCHES[0]
    assert code == CloseCode.TOO_BIG


def test_too_many_sessions_are_refused_before_the_upgrade() -> None:
    with serving(max_sessions=1, retry_after_s=7) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            with (
                pytest.raises(WebSocketDenialResponse) as refused,
                client.websocket_connect(ADDRESS),
            ):
                pytest.fail("connected")
            socket.send_json({"type": "stop"})
            hear(socket)
        transcribe(client)
    response = refused.value
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "7"
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "too_many_sessions"


def test_browsers_are_told_after_the_upgrade() -> None:
    headers = {"Origin": "http://testserver"}
    with serving(max_sessions=1) as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            with client.websocket_connect(ADDRESS, headers=headers) as second:
                messages, code = hear(second)
            socket.send_json({"type": "stop"})
            hear(socket)
    assert [m["code"] for m in messages] == ["too_many_sessions"]
    assert messages[0]["retryable"]
    assert code == CloseCode.BUSY


def test_no_sessions_before_the_model_is_loaded() -> None:
    def fail(name: str, device: str) -> FakeTranscriber:
        raise OSError("no such weights")

    app = create_app(Settings(allowed_hosts=("testserver",)), load_model=fail)
    with TestClient(app) as client:
        with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect(ADDRESS):
            pytest.fail("connected")
        assert refused.value.status_code == 503
        assert refused.value.json()["code"] == "not_ready"


def test_draining_ends_sessions_with_their_last_notes() -> None:
    with serving() as (client, _):
        with client.websocket_connect(ADDRESS) as socket:
            begin(socket)
            send_melody(socket)
            socket.send_json({"type": "flush", "id": "all"})
            messages: list[dict[str, Any]] = []
            while not messages or messages[-1]["type"] != "flushed":
                messages.append(socket.receive_json())
            drain(client)
            rest, code = hear(socket)
        assert check_notes(messages + rest) == PITCHES
        assert rest[-1]["reason"] == "draining"
        assert code == CloseCode.GOING_AWAY
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(ADDRESS):
            pytest.fail("connected")
        assert client.get("/readyz").json()["code"] == "draining"
