"""/metrics counts sessions, uploads and rejections, and names the model."""

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.service.apps import (
    ADDRESS,
    DURATION_S,
    MELODY,
    receive_all,
    send,
    serving,
    sound_file,
    start_session,
    state_of,
    stop,
)


def numbers(client: TestClient) -> dict[str, float]:
    """By name and labels, as in a query: `rse_refused_total{code=draining}`."""
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        sample.name
        + "".join(f"{{{key}={value}}}" for key, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_a_session_is_counted_in_all_its_parts() -> None:
    with serving() as (client, _):
        assert numbers(client)["rse_sessions"] == 0
        with client.websocket_connect(ADDRESS) as socket:
            start_session(socket)
            assert numbers(client)["rse_sessions"] == 1
            send(socket)
            while socket.receive_json()["type"] != "note_on":
                pass
            assert numbers(client)["rse_notes_total"] >= 1
            stop(socket)
        after = numbers(client)
    assert after["rse_sessions"] == 0
    assert after["rse_sessions_opened_total"] == 1
    assert after["rse_sessions_closed_total{reason=stop}"] == 1
    assert after["rse_audio_seconds_total{way=live}"] == pytest.approx(DURATION_S, abs=0.01)
    assert after["rse_notes_total"] == len(MELODY)
    assert after["rse_event_lateness_seconds_count"] > 0
    assert after["rse_step_seconds_count{way=live}"] > 0
    assert after["process_open_fds"] > 0


def test_refused_requests_are_counted_and_logged_without_their_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "service")
    with serving(max_uploads=1) as (client, _):
        client.get("/info?key=rse_secret", headers={"Host": "evil.example"})
        with state_of(client).reserve_upload("another"):
            client.post("/transcribe")
        for _ in range(3):
            with client.websocket_connect(ADDRESS) as socket:
                socket.send_text("{bad")
                receive_all(socket)
        with client.websocket_connect(ADDRESS):
            pass  # it leaves
        after = numbers(client)
    assert after["rse_sessions_opened_total"] == 0
    assert not any(name.startswith("rse_sessions_closed_total") for name in after)
    assert after["rse_refused_total{code=bad_message}"] == 3
    assert caplog.text.count("refused: ") == 5
    assert "rse_secret" not in caplog.text
    assert after["rse_refused_total{code=host_not_allowed}"] == 1
    assert after["rse_refused_total{code=too_many_uploads}"] == 1


def test_uploads_and_batches_that_fail_are_counted() -> None:
    files = {"file": ("a.flac", sound_file(kind="FLAC"))}
    with serving() as (client, model):
        client.post("/transcribe", files=files)
        model.fail_next_batch = True
        client.post("/transcribe", files=files)
        after = numbers(client)
    assert after["rse_uploads_ended_total{outcome=done}"] == 1
    assert after["rse_uploads_ended_total{outcome=internal}"] == 1
    assert after["rse_batch_failures_total{way=file}"] == 1
    # Received is received, whatever becomes of it.
    assert after["rse_audio_seconds_total{way=file}"] == pytest.approx(2 * DURATION_S, abs=0.02)
