"""Rate limits: the leaky bucket as a meter (GCRA, ITU-T I.371), also per client.

Not the library `limits`: it has no GCRA, and its memory store does not bound the number of clients.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

MAX_CLIENTS = 10_000  # whose rates are tracked


class Bucket:
    """Admits `burst` at once and `rate_per_s` on average.

    Its state is one number: the time at which everything taken so far will have leaked out.
    """

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst_s = burst / rate_per_s
        self._empty_at_s = 0.0

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until this amount conforms; 0 if it does now."""
        filled_s = max(0.0, self._empty_at_s - now_s) + amount / self._rate_per_s
        return max(0.0, filled_s - self._burst_s)

    def take(self, amount: float, now_s: float) -> float:
        """Counts an amount, conforming or not; returns the seconds until more would conform."""
        self._empty_at_s = max(self._empty_at_s, now_s) + amount / self._rate_per_s
        return self.wait_s(0, now_s)


class RateLimiter:
    """A bucket per client; above MAX_CLIENTS the least recent one is dropped."""

    def __init__(
        self, rate_per_s: float, burst: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, client: str, rate_per_s: float | None = None) -> float:
        """Counts a request and returns 0, or returns the seconds to wait for the next one.

        Refused requests do not count, so a client that keeps asking is admitted at its rate.
        `rate_per_s` replaces the default rate and scales the burst.
        """
        now_s = self._clock()
        bucket = self._buckets.get(client)
        if bucket is None:
            rate = rate_per_s or self._rate_per_s
            bucket = Bucket(rate, max(1.0, self._burst * rate / self._rate_per_s))
            self._buckets[client] = bucket
            if len(self._buckets) > MAX_CLIENTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(client)
        wait_s = bucket.wait_s(1, now_s)
        if not wait_s:
            bucket.take(1, now_s)
        return wait_s
