"""Sessions reserve the windows per second that they require, and resume their own."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from service.live import websocket
from service.ops.capacity import MAX_LOAD, WARM_UP_FACTOR
from service.protocol.options import Mode, StreamOptions
from tests.service.apps import (
    ADDRESS,
    PITCHES,
    check_notes,
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
    monkeypatch.setattr("service.ops.capacity.MEMORY_WINDOWS", 1e12)  # nothing is learned
    with serving(max_sessions="auto") as (client, _):
        yield client


def admit(client: TestClient, *sessions: StreamOptions) -> None:
    """Calibrate as on a machine that admits these sessions and no more."""
    state = state_of(client)
    total = 1.001 * sum(map(state.sessions.size, sessions))
    window_s = MAX_LOAD / total / WARM_UP_FACTOR
    state.sessions.calibrate(window_s, 1, state.pool.config.sample_rate)


def test_a_machine_too_slow_for_anytime_rejects_it(client: TestClient) -> None:
    admit(client, DEFAULT)
    error, _ = rejected_start(client, mode="anytime")
    assert (error["code"], error["retryable"]) == ("too_slow", False)
    assert error["message"] == "this machine is too slow to play along"
    error, _ = rejected_start(client, block_frames=1)
    assert error["message"] == "this machine is too slow for these options"
    admit(client, ANYTIME)
    ready, messages = perform(client, mode="anytime", lookahead_ms=200)
    assert (ready["mode"], ready["block_frames"]) == ("anytime", 2)
    assert check_notes(messages) == PITCHES


def test_a_session_reserves_what_it_requires(client: TestClient) -> None:
    admit(client, DEFAULT, ANYTIME)
    with client.websocket_connect(ADDRESS) as first, client.websocket_connect(ADDRESS) as second:
        start_session(first, mode="anytime")
        start_session(second)
        info = client.get("/info").json()["capacity"]
        used, limit = info["sessions_windows_per_s"], info["sessions_windows_per_s_limit"]
        assert used == pytest.approx(limit, rel=0.01)
        assert re.search(r"^rse_sessions_load (1\.0|0\.99)", client.get("/metrics").text, re.M)
        with pytest.raises(WebSocketDenialResponse) as full, client.websocket_connect(ADDRESS):
            pytest.fail("connected")
        assert full.value.json()["code"] == "too_many_sessions"
    assert state_of(client).sessions.used == 0


def test_a_fixed_number_counts_sessions_alike() -> None:
    with serving(max_sessions=2) as (client, _):
        with client.websocket_connect(ADDRESS) as one, client.websocket_connect(ADDRESS) as other:
            start_session(one, mode="anytime")
            start_session(other, block_frames=8)
            info = client.get("/info").json()
        assert (info["max_sessions"], info["capacity"]) == (2, None)


def test_of_two_connections_with_one_session_the_newer_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on a server without a free slot, where the older connection holds it."""
    monkeypatch.setattr(websocket, "GHOST_IDLE_S", 0.0)
    with serving(max_sessions=1) as (client, _), client.websocket_connect(ADDRESS) as ghost:
        ready = start_session(ghost)
        error, _ = rejected_start(client)  # another session does not get the slot
        assert error["code"] == "too_many_sessions"
        with client.websocket_connect(ADDRESS) as newer:
            kept = {name: ready[name] for name in ("mode", "lookahead_ms", "block_frames")}
            resume = {**ready["checkpoint"], "known_events": 0}
            assert start_session(newer, **kept, resume=resume)["session_id"] == ready["session_id"]
            messages, code = receive_all(ghost)
            assert (messages[-1]["code"], messages[-1]["retryable"]) == ("replaced", False)
            assert code == 4409
            send(newer)
            messages, _ = stop(newer)
        assert check_notes(messages) == PITCHES
        assert state_of(client).connections == {}
        assert state_of(client).sessions.count == 0
