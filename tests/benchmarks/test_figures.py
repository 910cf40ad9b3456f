"""What is computed from measurements; nothing is timed here."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.service.streams import MOST, search


def test_benchmarks_use_every_core_although_tests_use_one() -> None:
    """They start servers as tests do, so they could inherit what tests set for their processes."""
    names = ("OMP_NUM_THREADS", "RSE_MAX_SESSIONS")
    program = (
        "import os, tests.benchmarks.__main__, tests.benchmarks.load, tests.benchmarks.soak\n"
        f"assert not set(os.environ).intersection({names})"
    )
    environment = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize("most", [0, 1, 3, 200, MOST])
def test_the_search_ends_within_an_eighth_below_what_is_carried(most: int) -> None:
    tried: list[int] = []

    def carried(count: int) -> bool:
        tried.append(count)
        return count <= most

    best = search(carried)
    assert best <= most <= best + max(0, best // 8)
    assert len(tried) <= 20
