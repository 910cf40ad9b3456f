"""The live endpoint: the whole conversation."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.service.apps import (
    ADDRESS,
    DURATION_S,
    MELODY,
    PITCHES,
    RATE_HZ,
    SAMPLES,
    check_notes,
    midi_pitches,
    perform,
    send,
    serving,
    stop,
)


def test_a_whole_session(client: TestClient) -> None:
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


def test_ready_states_the_model_the_delay_and_the_limits() -> None:
    with serving(max_session_s=100, idle_timeout_s=5) as (client, model):
        ready, _ = perform(client, b"", lookahead_ms=100, block_frames=4)
        centre, _ = perform(client, b"", mode="centre")
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
    assert centre["session_id"] != ready["session_id"]


def test_a_raw_client_starts_by_its_address(client: TestClient) -> None:
    query = f"?encoding=pcm_s16le&sample_rate={RATE_HZ}&lookahead_ms=50"
    with client.websocket_connect(ADDRESS + query) as socket:
        send(socket)  # at once, without waiting for ready
        messages, _ = stop(socket)
    assert messages[0]["type"] == "ready"
    assert check_notes(messages) == PITCHES


def test_no_audio_at_all_is_an_empty_performance(client: TestClient) -> None:
    _, (done,) = perform(client, b"")
    counts = ("notes", "frames", "audio_s", "received_samples", "dropped_samples")
    assert done["totals"] == dict.fromkeys(counts, 0)
    assert midi_pitches(done["midi_base64"]) == []
