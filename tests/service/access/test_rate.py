"""The meter: bursts, averages, clients apart, a bounded memory; on a clock of its own."""

import pytest

from service.access import rate
from service.access.rate import Bucket, RateLimiter
from tests.fakes import Clock


def test_clients_have_buckets_of_their_own() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 2, clock)
    assert [limiter.admit("a") for _ in range(4)] == [0, 0, 1, 1]  # one refused costs nothing
    assert limiter.admit("b") == 0
    clock.now_s += 1
    assert limiter.admit("a") == 0
    assert limiter.admit("a") > 0


def test_a_recording_keeps_to_the_pace_after_its_burst_and_a_microphone_never_waits() -> None:
    recording, microphone = Bucket(4, 2), Bucket(4, 2)
    now_s = 0.0
    for _ in range(200):
        now_s += recording.take(0.5, now_s)
    assert now_s == pytest.approx((100 - 2) / 4)
    for _ in range(10_000):
        assert microphone.take(0.02, now_s) == 0
        now_s += 0.02


def test_the_memory_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_CLIENTS", 100)
    limiter = RateLimiter(1, 1, Clock())
    for n in range(1000):
        limiter.admit(f"client {n}")
    assert limiter.admit("client 900") > 0  # the latest are those remembered
    assert limiter.admit("client 899") == 0
