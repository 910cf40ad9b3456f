"""Sessions are admitted by the windows a second that they ask for."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from service.ops.capacity import ALONE, LOAD, Capacity
from service.protocol.options import Mode, StreamOptions
from tests.service.apps import (
    ADDRESS,
    PITCHES,
    begin,
    check_notes,
    perform,
    refusal,
    serving,
    state_of,
)

DEFAULT, ANYTIME = StreamOptions(), StreamOptions(mode=Mode.ANYTIME)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with serving(max_sessions=100) as (client, _):
        yield client


def admit(client: TestClient, *sessions: StreamOptions) -> None:
    """As on a machine that carries these sessions and no more."""
    state = state_of(client)
    rate_hz = state.pool.config.sample_rate
    asked = (Capacity(0.0, rate_hz).asked_per_s(options) for options in sessions)
    state.sessions.admit_by(Capacity((1 + 1e-9) * sum(asked) / LOAD, rate_hz))


def test_a_machine_too_slow_for_anytime_refuses_it(client: TestClient) -> None:
    admit(client, DEFAULT)
    error, _ = refusal(client, mode="anytime")
    assert (error["code"], error["retryable"]) == ("too_slow", False)
    assert error["message"] == "this machine is too slow to play along"
    error, _ = refusal(client, block_frames=1)
    assert error["message"] == "this machine is too slow for these options"
    admit(client, ANYTIME)
    ready, messages = perform(client, mode="anytime", lookahead_ms=200)
    assert (ready["mode"], ready["block_frames"]) == ("anytime", 2)
    assert check_notes(messages) == PITCHES


def test_a_session_that_may_have_the_machine_to_itself_has_it_alone(client: TestClient) -> None:
    state = state_of(client)
    rate_hz = state.pool.config.sample_rate
    asked = Capacity(0.0, rate_hz).asked_per_s(ANYTIME)
    state.sessions.admit_by(Capacity(asked / ALONE + 1, rate_hz))
    with client.websocket_connect(ADDRESS) as first:
        begin(first, mode="anytime")
        assert not state.sessions.has(state.sessions.size(StreamOptions(block_frames=32)))
    with client.websocket_connect(ADDRESS) as first:
        begin(first, block_frames=32)
        error, _ = refusal(client, mode="anytime")
        assert (error["code"], error["retryable"]) == ("too_many_sessions", True)


def test_a_session_takes_the_room_that_it_asks_for(client: TestClient) -> None:
    admit(client, DEFAULT, ANYTIME)
    with client.websocket_connect(ADDRESS) as first, client.websocket_connect(ADDRESS) as second:
        begin(first, mode="anytime")
        begin(second)
        info = client.get("/info").json()["capacity"]
        taken, limit = info["sessions_windows_per_s"], info["sessions_windows_per_s_limit"]
        assert taken == pytest.approx(limit)
        assert re.search(r"^rse_sessions_load (1\.0|0\.999)", client.get("/metrics").text, re.M)
        with pytest.raises(WebSocketDenialResponse) as full, client.websocket_connect(ADDRESS):
            pytest.fail("connected")
        assert full.value.json()["code"] == "too_many_sessions"
    assert state_of(client).sessions.taken == 0


def test_a_number_that_was_set_counts_sessions_alike() -> None:
    with serving(max_sessions=2) as (client, _):
        with client.websocket_connect(ADDRESS) as one, client.websocket_connect(ADDRESS) as other:
            begin(one, mode="anytime")
            begin(other, block_frames=8)
            info = client.get("/info").json()
        assert (info["max_sessions"], info["capacity"]) == (2, None)
