"""Tests of admission control, whose predicted load follows the measured cost of windows."""

from contextlib import ExitStack

import pytest

from model.config import HOP
from service.ops.capacity import MAX_LOAD, TRACKING_S, SessionAdmissionControl
from service.protocol.options import Mode, StreamOptions
from service.stream.windows import BatchTiming

ANYTIME = StreamOptions(mode=Mode.ANYTIME)
RATE_HZ = 100 * HOP


def control(window_s: float, workers: int = 1) -> SessionAdmissionControl:
    sessions = SessionAdmissionControl("auto")
    sessions.calibrate(window_s - TRACKING_S, lambda: workers, RATE_HZ)
    return sessions


def live_batch(windows: int, window_s: float, is_busy: bool = True) -> BatchTiming:
    return BatchTiming("live", windows, 0.9 * window_s * windows, window_s * windows, is_busy)


def test_sessions_share_the_admissible_load() -> None:
    sessions = control(0.002, workers=2)
    assert sessions.total == pytest.approx(MAX_LOAD * 1000)
    for options in (StreamOptions(block_frames=1), StreamOptions(block_frames=8)):
        count = int(sessions.total / sessions.size(options))
        assert sessions.fits(count * sessions.size(options) - 400) or count == 0
    assert control(10.0).limit == 1


@pytest.mark.parametrize(("window_s", "fits"), [(0.016, True), (0.017, False)])
def test_anytime_requires_one_fast_worker(window_s: float, fits: bool) -> None:
    sessions = control(window_s, workers=4)
    assert sessions.fits(sessions.size(ANYTIME)) == fits
    assert sessions.rejection(ANYTIME).code == ("too_many_sessions" if fits else "too_slow")


def test_slow_machine_is_not_reported_as_busy() -> None:
    sessions = control(0.045)
    with sessions.reserve("a", 1, sessions.initial_size) as reservation:
        assert not reservation.resize(sessions.size(StreamOptions()))
        assert sessions.rejection(StreamOptions()).code == "too_slow"
        assert reservation.resize(sessions.size(StreamOptions(block_frames=8)))


def test_admission_follows_the_cost_of_windows() -> None:
    sessions = control(0.02)
    with sessions.reserve("a", 9, sessions.size(StreamOptions())):
        assert not sessions.fits(sessions.size(StreamOptions()))
        for _ in range(1000):
            sessions.update_cost(live_batch(4, 0.002))
            sessions.update_cost(
                BatchTiming("file", 4, 9.0, 9.0)
            )  # recordings yield to live sessions
            sessions.update_cost(BatchTiming("live", 0, 0.0, 0.0))  # a batch that failed
            sessions.update_cost(live_batch(1, 0.1, is_busy=False))  # the worker has time to spare
        assert sessions.window_s == pytest.approx(0.002, rel=0.01)
        assert sessions.limit > 10
        for _ in range(1000):
            sessions.update_cost(live_batch(4, 0.03))
        assert sessions.limit == 1
        assert sessions.load > 1
        # The other load has ended. The worker is no longer busy, but the cost must fall again.
        for _ in range(4000):
            sessions.update_cost(live_batch(1, 0.003, is_busy=False))
        assert sessions.window_s == pytest.approx(0.003, rel=0.01)
    assert sessions.window_s == pytest.approx(0.002, rel=0.01)  # an idle service forgets the rest


@pytest.mark.parametrize("window_s", [0.001, 0.008, 0.02])
def test_load_is_1_if_no_further_session_fits(window_s: float) -> None:
    sessions = control(window_s)
    size = sessions.size(StreamOptions())
    with ExitStack() as stack:
        while sessions.fits(size):
            assert sessions.load < 1
            stack.enter_context(sessions.reserve("a", 99, size))
        assert sessions.load >= 1


def test_workers_that_restart_have_no_capacity() -> None:
    running = 2
    sessions = SessionAdmissionControl("auto")
    assert sessions.load == 0
    sessions.calibrate(0.005, lambda: running, RATE_HZ)
    limit = sessions.limit
    running = 1
    assert sessions.limit == limit // 2
    running = 0
    assert (sessions.total, sessions.load) == (0, 0)


def test_one_pause_of_the_machine_changes_the_cost_little() -> None:
    sessions = control(0.005)
    sessions.update_cost(live_batch(4, 15.0))
    assert sessions.window_s < 0.0052
