"""What a machine carries is measured when it starts."""

import pytest

from model.config import HOP
from service.ops.capacity import ALONE_WORKER, LOAD, Capacity
from service.protocol.options import Mode, StreamOptions
from tests.service.apps import serving

ANYTIME = StreamOptions(mode=Mode.ANYTIME)


def test_sessions_take_a_part_of_what_the_machine_computes() -> None:
    capacity = Capacity(windows_per_s=1000.0, sample_rate_hz=100 * HOP)
    assert capacity.admitted_per_s == LOAD * 1000
    for options in (StreamOptions(block_frames=1), StreamOptions(block_frames=8)):
        asked = capacity.asked_per_s(options)
        count = capacity.sessions(options)
        assert count * asked <= capacity.admitted_per_s < (count + 1) * asked
    slowest = Capacity(windows_per_s=0.1, sample_rate_hz=100 * HOP)
    assert slowest.sessions(StreamOptions()) == 1


@pytest.mark.parametrize(("windows_per_s", "sessions"), [(100.0, 1), (75.0, 0)])
def test_one_session_in_anytime_mode_may_have_the_machine_to_itself(
    windows_per_s: float, sessions: int
) -> None:
    capacity = Capacity(windows_per_s, sample_rate_hz=100 * HOP)
    assert capacity.sessions(ANYTIME) == sessions
    assert capacity.admitted_per_s < 52  # what it asks for: no others beside it


def test_no_session_is_larger_than_a_worker() -> None:
    """Four workers together compute what one of them alone cannot."""
    capacity = Capacity(windows_per_s=140.0, sample_rate_hz=100 * HOP, alone=ALONE_WORKER / 4)
    assert capacity.admitted_per_s > capacity.asked_per_s(ANYTIME)
    assert capacity.sessions(ANYTIME) == 0
    assert capacity.sessions(StreamOptions(block_frames=8)) == 3


def test_the_service_admits_as_many_as_it_measured() -> None:
    with serving(max_sessions="auto") as (client, _):
        ready = client.get("/readyz").json()
        info = client.get("/info").json()
        metrics = client.get("/metrics").text
    assert info["settings"]["max_sessions"] == "auto"
    assert info["capacity"]["windows_per_s"] > 0
    assert info["max_sessions"] == ready["max_sessions"] >= 1
    assert info["capacity"]["sessions_windows_per_s"] == 0
    assert f"rse_sessions_limit {info['max_sessions']:.1f}" in metrics
    assert "rse_sessions_load 0.0" in metrics
