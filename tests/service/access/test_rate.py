"""The meter: bursts, averages, clients apart, a bounded memory; on a clock of its own."""

from __future__ import annotations

import pytest

from service.access.rate import Bucket, RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bucket_takes_its_burst_and_then_its_rate() -> None:
    bucket = Bucket(rate_per_s=4, burst=8)
    assert bucket.wait_s(8, 0) == 0
    bucket.take(8, 0)
    assert bucket.wait_s(1, 0) == pytest.approx(0.25)
    assert bucket.wait_s(1, 0.25) == pytest.approx(0)
    bucket.take(1, 0.25)
    assert bucket.wait_s(8, 100) == 0  # and no more than the burst is saved up
    bucket.take(8, 100)
    assert bucket.wait_s(1, 100) == pytest.approx(0.25)


def test_what_does_not_conform_may_be_taken_as_a_debt() -> None:
    bucket = Bucket(rate_per_s=2, burst=1)
    bucket.take(9, 0)
    assert bucket.wait_s(1, 0) == pytest.approx(4.5)


def test_clients_have_buckets_of_their_own() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 2, max_clients=10, clock=clock)
    assert [limiter.admit("a") for _ in range(3)] == [0, 0, pytest.approx(1)]
    assert limiter.admit("b") == 0
    clock.now_s += 1
    assert limiter.admit("a") == 0
    assert limiter.admit("a") > 0


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, max_clients=10, clock=clock)
    assert limiter.admit("a") == 0
    assert {limiter.admit("a") for _ in range(50)} == {1.0}
    clock.now_s += 1
    assert limiter.admit("a") == 0


def test_a_rate_of_its_own_scales_the_burst() -> None:
    limiter = RateLimiter(10, 20, max_clients=10, clock=Clock())
    admitted = [limiter.admit("slow", rate_per_s=1) for _ in range(5)]
    assert [wait > 0 for wait in admitted] == [False, False, True, True, True]


def test_the_memory_of_clients_is_bounded() -> None:
    limiter = RateLimiter(1, 1, max_clients=100, clock=Clock())
    for n in range(1000):
        limiter.admit(f"client {n}")
    assert len(limiter._buckets) == 100
    assert limiter.admit("client 999") > 0  # the latest are those remembered
