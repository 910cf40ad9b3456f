"""How much is tried.

The suite tries few inputs and always the same ones; `make fuzz` sets RSE_FUZZ_INPUTS, the number
for all targets together, and every run then tries others.
"""

import os

from hypothesis import HealthCheck, settings

ALL_INPUTS = int(os.environ.get("RSE_FUZZ_INPUTS", "0"))


def inputs(few: int, share: float) -> settings:
    """So many inputs in the suite; this share of all where it is run to fuzz. The shares of all
    targets add up to 1."""
    most = max(few, round(share * ALL_INPUTS))
    return settings(max_examples=most, suppress_health_check=list(HealthCheck))
