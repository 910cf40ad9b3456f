"""Tests of the metrics of sessions, uploads and rejections."""

import logging
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.fakes import FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.apps import (
    ADDRESS,
    DURATION_S,
    MELODY,
    live_session,
    post,
    receive_all,
    send,
    serving,
    sound_file,
    state_of,
    stop,
)


def metrics(client: TestClient) -> dict[str, float]:
    """Return the metrics by name and labels, such as `rse_refused_total{code=draining}`."""
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        sample.name
        + "".join(f"{{{key}={value}}}" for key, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_count_a_session() -> None:
    with serving() as client:
        before = metrics(client)
        assert before["rse_sessions"] == 0
        assert before["rse_workers_running"] == 1
        # Counters start at 0: Prometheus ignores the step from no value to 1.
        assert before["rse_sessions_closed_total{reason=internal}"] == 0
        assert before["rse_refused_total{code=client_limit}"] == 0
        assert before["rse_uploads_ended_total{outcome=done}"] == 0
        start_s = monotonic()
        with live_session(client) as socket:
            assert metrics(client)["rse_sessions"] == 1
            send(socket)
            while socket.receive_json()["type"] != "note_on":
                pass
            assert metrics(client)["rse_notes_total"] >= 1
            stop(socket)
        duration_s = monotonic() - start_s
        after = metrics(client)
    assert after["rse_sessions"] == 0
    assert after["rse_sessions_opened_total"] == 1
    assert after["rse_sessions_closed_total{reason=stop}"] == 1
    assert after["rse_audio_seconds_total{way=live}"] == pytest.approx(DURATION_S, abs=0.01)
    assert after["rse_notes_total"] == len(MELODY)
    events = after["rse_event_lateness_seconds_count"]
    assert events > 0
    assert after["rse_event_lateness_seconds_sum"] < events * duration_s
    assert after["rse_step_seconds_count{way=live}"] > 0
    assert after["process_open_fds"] > 0


def test_rejections_are_counted_and_logged_without_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service")
    with serving(max_uploads=1) as client:
        client.get("/info?key=rse_secret", headers={"Host": "evil.example"})
        with state_of(client).reserve_upload("another"):
            client.post("/transcribe")
        for _ in range(3):
            with client.websocket_connect(ADDRESS) as socket:
                socket.send_text("{bad")
                receive_all(socket)
        with client.websocket_connect(ADDRESS):
            pass  # disconnects
        after = metrics(client)
    assert after["rse_sessions_opened_total"] == 0
    assert not any(v for k, v in after.items() if k.startswith("rse_sessions_closed_total"))
    assert after["rse_refused_total{code=bad_message}"] == 3
    assert caplog.text.count("rejected: ") == 5
    assert "rse_secret" not in caplog.text
    assert after["rse_refused_total{code=host_not_allowed}"] == 1
    assert after["rse_refused_total{code=too_many_uploads}"] == 1


def test_metrics_count_uploads_and_failed_batches() -> None:
    samples = play(MELODY, DURATION_S, FAKE_RATE_HZ)
    with serving() as client:
        for last in (0.0, FakeTranscriber.POISON):
            samples[-1] = last
            post(client, sound_file(samples, subtype="FLOAT", rate_hz=FAKE_RATE_HZ))
        after = metrics(client)
    assert after["rse_uploads_ended_total{outcome=done}"] == 1
    assert after["rse_uploads_ended_total{outcome=internal}"] == 1
    assert after["rse_batch_failures_total{way=file}"] == 1
    # Audio of failed uploads counts, too.
    assert after["rse_audio_seconds_total{way=file}"] == pytest.approx(2 * DURATION_S, abs=0.02)
