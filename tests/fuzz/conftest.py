"""How much is tried, and the count of it.

The suite tries few inputs and always the same ones; `make fuzz` sets RSE_FUZZ_INPUTS, the number
for all targets together, and every run then tries others.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

ALL_INPUTS = int(os.environ.get("RSE_FUZZ_INPUTS", "0"))
tried: Counter[str] = Counter()

Test = TypeVar("Test", bound=Callable[..., object])


def inputs(few: int, share: float) -> settings:
    """So many inputs in the suite; this share of all where it is run to fuzz."""
    most = max(few, round(share * ALL_INPUTS))
    return settings(max_examples=most, suppress_health_check=list(HealthCheck))


def count(target: str) -> None:
    """One more input was tried."""
    tried[target] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ALL_INPUTS:
        for target, number in sorted(tried.items()):
            terminalreporter.write_line(f"{target:<24} {number:>9,} inputs")
        terminalreporter.write_line(f"{'all':<24} {tried.total():>9,} inputs")
