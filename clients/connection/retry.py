"""Whether, and when, a session that failed is followed by another attempt."""

import random
import time
from collections.abc import Callable, Iterator

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0
# Consecutive sessions without any new frame before giving up.
MAX_FRUITLESS = 5


def delays_s() -> Iterator[float]:
    """Pauses before each new attempt: doubling, with jitter so that clients do not come at once."""
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s * random.uniform(0.75, 1.25)
        delay_s = min(LONGEST_DELAY_S, 2 * delay_s)


class Retry:
    """Counts attempts and outages.

    Args:
        give_up_s: time without a connection after which it is over; None for any, as long as
            audio comes.
        delays: pauses between attempts, in seconds.
    """

    def __init__(self, give_up_s: float | None, delays: Callable[[], Iterator[float]]) -> None:
        self._give_up_s = give_up_s
        self._new_delays = delays
        self._delays = delays()
        self._lost_at: float | None = None
        self._fruitless = 0

    def after(self, *, connected: bool, fruitful: bool, audio_ended: bool) -> float | None:
        """The pause after a failure, in seconds; None to give up.

        Args:
            connected: there was a session.
            fruitful: it decided frames that none before it had.
            audio_ended: no more audio will come.
        """
        if connected or self._lost_at is None:
            self._lost_at = time.monotonic()
        if fruitful:
            self._delays = self._new_delays()
            self._fruitless = 0
        elif connected:
            self._fruitless += 1
        if self._give_up_s is None:
            impatient = audio_ended and not connected
        else:
            impatient = time.monotonic() - self._lost_at >= self._give_up_s
        if impatient or self._fruitless >= MAX_FRUITLESS:
            return None
        return next(self._delays)
