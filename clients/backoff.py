"""Delays before reconnecting to a lost service."""

from __future__ import annotations

import random
from collections.abc import Iterator

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 15.0


def delays_s() -> Iterator[float]:
    """Pauses before each new attempt: doubling, with jitter so that clients do not come at once."""
    delay_s = FIRST_DELAY_S
    while True:
        yield delay_s * random.uniform(0.75, 1.25)
        delay_s = min(LONGEST_DELAY_S, 2 * delay_s)
