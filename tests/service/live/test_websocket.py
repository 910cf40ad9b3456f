"""Tests of the websocket endpoint: complete sessions, bad input, limits and internal errors."""

import base64
import gc
import json
import time
from contextlib import ExitStack
from functools import partial
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from starlette.testclient import TestClient

from service.engine import runners
from service.live import websocket
from service.protocol.errors import CloseCode
from service.protocol.server_messages import Frames
from service.stream import ending, session
from service.stream.session import LOWEST_PITCH
from tests.fakes import (
    FAKE_PITCHES,
    FAKE_RATE_HZ,
    FakeStream,
    FakeTranscriber,
    GatedTranscriber,
    play,
)
from tests.service.apps import (
    ADDRESS,
    DURATION_S,
    MELODY,
    PITCHES,
    RATE_HZ,
    SAMPLES,
    START,
    check_notes,
    converse,
    drain,
    live_session,
    melody,
    midi_pitches,
    of_type,
    pcm16,
    perform,
    receive_all,
    rejected_start,
    send,
    serving,
    sound_file,
    start_session,
    stop,
    transcribe_melody,
)


def check_failure(messages: list[dict[str, Any]], error: str) -> None:
    """Assert that the session ended with one error and the notes of the melody."""
    assert [message["code"] for message in of_type(messages, "error")] == [error]
    assert check_notes(messages) == PITCHES
    done = messages[-1]
    assert (done["type"], done["reason"]) == ("done", "error")
    assert midi_pitches(done["midi_base64"]) == PITCHES


def test_session_returns_all_notes_and_totals(client: TestClient) -> None:
    ready, messages = perform(client, lookahead_ms=50, block_frames=2)
    assert [m["seq"] for m in [ready, *messages]] == list(range(len(messages) + 1))
    assert check_notes(messages) == PITCHES
    done = messages[-1]
    assert (done["type"], done["reason"]) == ("done", "stop")
    assert done["totals"]["notes"] == len(MELODY)
    assert done["totals"]["received_samples"] == SAMPLES
    assert done["totals"]["dropped_samples"] == 0
    assert done["totals"]["audio_s"] == pytest.approx(DURATION_S)
    assert midi_pitches(done["midi_base64"]) == PITCHES


@pytest.mark.parametrize("end", ["stop", "draining"])
def test_long_session_that_ends_in_silence_gets_its_file(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The file is written in another process, and no other message precedes `done`."""
    monkeypatch.setattr(ending, "MAX_SHORT_NOTES", 0)
    with serving() as client, live_session(client) as socket:
        send(socket)
        send(socket, bytes(4 * 2 * RATE_HZ))
        socket.send_json({"type": "flush", "id": "silence"})
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] != "flushed":
            messages.append(socket.receive_json())
        if end == "draining":
            drain(client)
            rest, _ = receive_all(socket)
        else:
            rest, _ = stop(socket)
        messages += rest
        assert (messages[-1]["type"], messages[-1]["reason"]) == ("done", end)
        assert [message["seq"] for message in messages] == list(range(1, 1 + len(messages)))
        assert midi_pitches(messages[-1]["midi_base64"]) == PITCHES


def test_ready_has_limits_and_effective_options() -> None:
    with serving(max_session_s=100, idle_timeout_s=5) as client:
        ready, _ = perform(client, b"")
        other, _ = perform(client, b"", mode="anytime", block_frames=1)
    assert ready["limits"] == {
        "max_message_bytes": 1024 * 1024,
        "max_session_s": 100,
        "idle_timeout_s": 5,
        "max_buffered_ms": 2000,
    }
    assert 100 < ready["delay_ms"] < ready["note_off_delay_ms"] < 1000
    assert (other["mode"], other["block_frames"]) == ("anytime", 1)
    assert other["session_id"] != ready["session_id"]


def test_bad_start_error_has_no_path() -> None:
    with serving(model="/secret/weights.safetensors") as client:
        error, close = rejected_start(client, model="other")
        transcribe_melody(client)
    assert (error["seq"], error["code"]) == (0, "unknown_model")
    assert not error["retryable"]
    assert "secret" not in error["message"]
    assert "fake" in error["message"]
    assert close == CloseCode.BAD_REQUEST


def test_internal_error_before_ready_closes_the_session(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("secret detail")

    with monkeypatch.context() as patch:
        patch.setattr("service.workers.worker.LiveSession", fail)
        error, close = rejected_start(client)
    assert (error["seq"], error["code"]) == (0, "internal")
    assert "secret" not in error["message"]
    assert close == CloseCode.INTERNAL
    transcribe_melody(client)


def test_rejected_message_keeps_the_earlier_notes(client: TestClient) -> None:
    with live_session(client, encoding="pcm_f32le") as socket:
        send(socket, melody().astype("<f4").tobytes())
        # Too large in bytes, but not in characters.
        socket.send_text("\N{EIGHTH NOTE}" * (2**20 // 3 + 1))
        messages, closed = receive_all(socket)
    check_failure(messages, "message_too_big")
    assert closed == CloseCode.TOO_BIG
    transcribe_melody(client)


def test_incomplete_last_sample_is_an_error_only_after_stop() -> None:
    """A server that drains may cut off a chunk of the client."""
    with serving() as client:
        for drains in (False, True):
            with live_session(client) as socket:
                send(socket)
                socket.send_bytes(b"?")
                if drains:
                    socket.send_json({"type": "flush", "id": "all"})
                    messages: list[dict[str, Any]] = []
                    while not of_type(messages, "flushed"):
                        messages.append(socket.receive_json())
                    drain(client)
                    rest, code = receive_all(socket)
                    messages += rest
                else:
                    messages, code = stop(socket)
            assert [m["code"] for m in of_type(messages, "error")] == ["odd_bytes"] * (not drains)
            assert code == (CloseCode.GOING_AWAY if drains else CloseCode.BAD_REQUEST)
            assert check_notes(messages) == PITCHES


def test_wav_file_sent_as_pcm_gets_a_warning(client: TestClient) -> None:
    _, messages = perform(client, sound_file(kind="WAV"))
    (warning,) = of_type(messages, "warning")
    assert warning["code"] == "unlikely_audio"
    assert "a WAV file" in warning["message"]
    assert check_notes(messages) == PITCHES


def test_model_error_ends_only_its_session(client: TestClient) -> None:
    samples = play(MELODY, DURATION_S, FAKE_RATE_HZ)
    poisoned = np.append(samples, np.full(FAKE_RATE_HZ, FakeTranscriber.POISON, np.float32))
    options = {"encoding": "pcm_f32le", "sample_rate": FAKE_RATE_HZ}
    with live_session(client, **options) as one, live_session(client) as other:
        send(one, poisoned.astype("<f4").tobytes())
        messages, closed = receive_all(one)
        send(other)
        assert check_notes(stop(other)[0]) == PITCHES
    assert [m["code"] for m in of_type(messages, "error")] == ["internal"]
    assert [m["seq"] for m in messages] == list(range(1, len(messages) + 1))
    assert closed == CloseCode.INTERNAL


def test_sessions_in_a_batch_have_their_own_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions with another look-ahead cannot be in the same batch."""
    predict, sizes = runners.PlainRunner.predict, set[int]()

    def counted(self: Any, rows: Any, positions: slice) -> Any:
        sizes.add(len(rows))
        return predict(self, rows, positions)

    monkeypatch.setattr(runners, "MAX_STEP_MS", 1e6)
    monkeypatch.setattr(runners.PlainRunner, "batch_windows", 4)
    monkeypatch.setattr(runners.PlainRunner, "predict", counted)
    model = GatedTranscriber()
    model.gate.set()
    options: dict[int, dict[str, Any]] = {57: {}, 69: {}, 81: {"lookahead_ms": 200}, 93: {}}
    with serving(model) as client, ExitStack() as stack:
        sockets = {p: stack.enter_context(client.websocket_connect(ADDRESS)) for p in options}
        for pitch, socket in sockets.items():
            start_session(socket, **options[pitch])
        model.close_gate()
        for pitch, socket in sockets.items():
            onset_s = 0.1 + pitch / 200
            send(socket, pcm16(play([(pitch, onset_s, 1.0)], 1.2, RATE_HZ)))
        model.gate.set()
        for pitch, socket in sockets.items():
            (note,) = of_type(stop(socket)[0], "note_on")
            assert note["pitch"] == pitch
            assert note["time_s"] == pytest.approx(0.1 + pitch / 200, abs=0.03)
    assert max(sizes) >= 3


def test_idle_client_gets_a_timeout_and_its_notes() -> None:
    with serving(idle_timeout_s=0.2) as client:
        assert client.portal is not None
        talk = partial(converse, client.app, json.dumps(START), pcm16(melody()), disconnects=False)
        messages, code = client.portal.call(talk)
    check_failure(messages, "idle_timeout")
    assert of_type(messages, "error")[0]["retryable"]
    assert code == CloseCode.TIMEOUT


def test_session_ends_at_the_audio_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s = 60  # limit of audio and of real time
    monkeypatch.setattr(websocket, "MAX_PACE", 1000.0)
    limits: dict[str, Any] = {"max_session_s": limit_s, "idle_timeout_s": limit_s}
    with serving(**limits) as client, live_session(client) as socket:
        send(socket)
        for _ in range(limit_s):
            socket.send_bytes(bytes(2 * RATE_HZ))
        messages, code = receive_all(socket)
    check_failure(messages, "session_too_long")
    assert limit_s - 1 < messages[-1]["totals"]["audio_s"] <= limit_s
    assert code == CloseCode.TIMEOUT


def test_session_ends_at_the_time_limit() -> None:
    # The options are in the URL, because a slow machine could send `start` after the limit.
    url = f"{ADDRESS}?encoding=pcm_s16le&sample_rate={RATE_HZ}"
    with serving(max_session_s=2, idle_timeout_s=2) as client:
        with client.websocket_connect(url) as socket:
            messages: list[dict[str, Any]] = []
            while not of_type(messages, "done"):
                socket.send_json({"type": "keepalive"})
                socket.send_bytes(bytes(200))
                messages.append(socket.receive_json())  # `progress` paces this loop
    assert of_type(messages, "error")[0]["code"] == "session_too_long"


def test_keepalives_do_not_replace_audio_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_KEEPALIVE_S", 0.5)
    with serving() as client, live_session(client) as socket:
        socket.send_json({"type": "keepalive"})
        messages, _ = receive_all(socket)
    (error,) = of_type(messages, "error")
    assert (error["code"], error["message"]) == ("idle_timeout", "no audio for 0.5 s")


def test_pace_of_the_audio_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "BURST_S", DURATION_S - 1)
    monkeypatch.setattr(websocket, "MAX_PACE", 2.0)
    monkeypatch.setattr(websocket, "MIN_READ_BYTES_PER_S", 1)
    with serving() as client:
        start_s = time.monotonic()
        transcribe_melody(client)
        assert time.monotonic() - start_s >= 0.5


def test_worker_forgets_a_session_whose_client_disconnects() -> None:
    streams = WeakSet[Any]()

    class RecordingTranscriber(FakeTranscriber):
        def open_stream(self) -> FakeStream:
            streams.add(stream := super().open_stream())
            return stream

    with serving(RecordingTranscriber()) as client:
        with live_session(client) as socket:
            send(socket)
            assert streams
        for _ in range(600):
            gc.collect()
            if not streams:
                break
            time.sleep(0.1)
        assert not streams


def test_note_limit_ends_the_session_with_its_notes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_NOTES", len(MELODY) - 1)
    with live_session(client) as socket:
        send(socket)
        messages, code = stop(socket)
    assert [m["code"] for m in of_type(messages, "error")] == ["too_many_notes"]
    check_notes(messages)
    assert midi_pitches(messages[-1]["midi_base64"])[0] == PITCHES[0]
    assert code == CloseCode.TOO_BIG


def test_backpressure_does_not_count_as_idle() -> None:
    model = GatedTranscriber()
    model.gate.set()
    with serving(model, idle_timeout_s=3) as client, live_session(client) as socket:
        model.close_gate()
        for _ in range(4):  # more than is buffered
            send(socket)
        socket.send_json({"type": "stop"})
        time.sleep(4)
        model.gate.set()
        messages, code = receive_all(socket)
    assert check_notes(messages) == 4 * PITCHES
    assert (messages[-1]["type"], messages[-1]["reason"], code) == ("done", "stop", 1000)
    assert messages[-1]["totals"]["received_samples"] == 4 * SAMPLES


def test_frames_are_sent_on_request(client: TestClient) -> None:
    _, without = perform(client)
    _, messages = perform(client, frames=True)
    assert not of_type(without, "frames")
    notes = ("note_on", "note_off")
    assert [dict(m, seq=0) for m in of_type(messages, *notes)] == [
        dict(m, seq=0) for m in of_type(without, *notes)
    ]
    frames = [Frames.model_validate(m) for m in of_type(messages, "frames")]
    assert [m.frame for m in frames] == np.cumsum([0, *(m.count for m in frames[:-1])]).tolist()
    data = b"".join(base64.b64decode(m.probabilities_base64, validate=True) for m in frames)
    probabilities = np.frombuffer(data, np.uint8).reshape(-1, frames[0].pitches)
    assert abs(len(probabilities) - DURATION_S * 11_025 / 128) < 2
    detected = {LOWEST_PITCH + int(p) for p in np.flatnonzero(probabilities.max(axis=0) > 128)}
    assert detected == set(FAKE_PITCHES) - {93}  # the melody has no A6
