"""Number of fuzz inputs.

The test suite uses few inputs, which are always the same. `make fuzz` sets RSE_FUZZ_INPUTS, the
number for all targets together, and uses different inputs in each run.
"""

import os

from hypothesis import HealthCheck, settings

ALL_INPUTS = int(os.environ.get("RSE_FUZZ_INPUTS", "0"))


def inputs(min_count: int, share: float) -> settings:
    """Return settings with ``share`` of RSE_FUZZ_INPUTS examples, but at least ``min_count``.

    The shares of all targets add up to 1.
    """
    count = max(min_count, round(share * ALL_INPUTS))
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))
