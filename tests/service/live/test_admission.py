"""Tests of the admission of sessions, and of connections that replace each other."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from service.live import websocket
from service.ops.capacity import MAX_LOAD, TRACKING_S
from service.protocol.options import Mode, StreamOptions
from tests.service.apps import (
    ADDRESS,
    PITCHES,
    check_notes,
    live_session,
    perform,
    receive_all,
    rejected_start,
    send,
    serving,
    start_session,
    state_of,
    stop,
)

DEFAULT, ANYTIME = StreamOptions(), StreamOptions(mode=Mode.ANYTIME)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    # Measured times of windows do not change the capacity.
    monkeypatch.setattr("service.ops.capacity.MEMORY_WINDOWS", 1e12)
    with serving(max_sessions="auto") as client:
        yield client


def set_capacity(client: TestClient, *sessions: StreamOptions) -> None:
    """Calibrate the service as on a machine that admits exactly these sessions."""
    state = state_of(client)
    total = 1.001 * sum(map(state.sessions.size, sessions))
    window_s = MAX_LOAD / total - TRACKING_S
    state.sessions.calibrate(window_s, lambda: 1, state.pool.config.sample_rate)


def test_options_beyond_the_capacity_are_rejected(client: TestClient) -> None:
    set_capacity(client, DEFAULT)
    error, _ = rejected_start(client, mode="anytime")
    assert (error["code"], error["retryable"]) == ("too_slow", False)
    assert error["message"] == "this machine is too slow to play along"
    error, _ = rejected_start(client, block_frames=1)
    assert error["message"] == "this machine is too slow for these options"
    set_capacity(client, ANYTIME)
    ready, messages = perform(client, mode="anytime", lookahead_ms=200)
    assert (ready["mode"], ready["block_frames"]) == ("anytime", 2)
    assert check_notes(messages) == PITCHES


def test_session_reserves_its_load(client: TestClient) -> None:
    info, metrics = client.get("/info").json(), client.get("/metrics").text
    assert info["capacity"]["windows_per_s"] > 0  # measured when the service started
    assert info["capacity"]["sessions_windows_per_s"] == 0
    assert f"rse_sessions_limit {info['max_sessions']:.1f}" in metrics
    assert "rse_sessions_load 0.0" in metrics
    set_capacity(client, DEFAULT, ANYTIME)
    with live_session(client, mode="anytime"), live_session(client):
        info = client.get("/info").json()
        assert info["settings"]["max_sessions"] == "auto"
        assert info["max_sessions"] == client.get("/readyz").json()["max_sessions"] >= 1
        capacity = info["capacity"]
        assert capacity["windows_per_s"] > 0
        used, limit = capacity["sessions_windows_per_s"], capacity["sessions_windows_per_s_limit"]
        assert used == pytest.approx(limit, rel=0.01)
        assert re.search(r"^rse_sessions_load (1\.0|0\.99)", client.get("/metrics").text, re.M)
        with pytest.raises(WebSocketDenialResponse) as denial, client.websocket_connect(ADDRESS):
            pytest.fail("connected")
        assert denial.value.json()["code"] == "too_many_sessions"
    assert state_of(client).sessions.used == 0


def test_fixed_limit_ignores_the_options() -> None:
    with serving(max_sessions=2) as client:
        with live_session(client, mode="anytime"), live_session(client, block_frames=8):
            info = client.get("/info").json()
        assert (info["max_sessions"], info["capacity"]) == (2, None)


def test_newer_connection_replaces_the_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds without a free slot, because the older connection's slot is reused."""
    monkeypatch.setattr(websocket, "GHOST_IDLE_S", 0.0)
    with serving(max_sessions=1) as client, client.websocket_connect(ADDRESS) as ghost:
        ready = start_session(ghost)
        error, _ = rejected_start(client)  # another session does not get the slot
        assert error["code"] == "too_many_sessions"
        with client.websocket_connect(ADDRESS) as newer:
            options = {name: ready[name] for name in ("mode", "lookahead_ms", "block_frames")}
            resume = {**ready["checkpoint"], "known_events": 0}
            assert (
                start_session(newer, **options, resume=resume)["session_id"] == ready["session_id"]
            )
            messages, code = receive_all(ghost)
            assert (messages[-1]["code"], messages[-1]["retryable"]) == ("replaced", False)
            assert code == 4409
            send(newer)
            messages, _ = stop(newer)
        assert check_notes(messages) == PITCHES
        assert state_of(client).connections == {}
        assert state_of(client).sessions.count == 0


def test_resumed_session_leaves_no_socket_without_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "GHOST_IDLE_S", 0.0)
    monkeypatch.setattr(websocket, "MAX_SOCKETS_WITHOUT_SLOT", 1)
    with serving(max_sessions=1) as client, ExitStack() as sockets:
        fields: dict[str, Any] = {}
        for _ in range(3):  # each resumes the session of the one before
            socket = sockets.enter_context(client.websocket_connect(ADDRESS))
            ready = start_session(socket, **fields)
            fields = {name: ready[name] for name in ("mode", "lookahead_ms", "block_frames")}
            fields["resume"] = {**ready["checkpoint"], "known_events": 0}
