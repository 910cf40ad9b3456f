"""What is computed from measurements; nothing is timed here."""

import os
import subprocess
import sys

import pytest

from service.protocol.server_messages import Done, Totals
from tests.benchmarks.service.live import Stream, report
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


def test_figures_of_a_live_stream() -> None:
    totals = Totals(notes=2, frames=862, audio_s=10.0, received_samples=480_000, dropped_samples=0)
    done = Done(seq=9, reason="stop", totals=totals, midi_base64="")
    seen = Stream(
        delay_ms=200.0,
        on_ms=[30.0, 50.0],
        lateness_ms=[-170.0, -150.0],
        lag=[(1.0, 0.0), (2.0, 4.0)],
        frames=[(1.0, 86), (2.0, 172)],
        done=done,
    )
    figures = report(seen, 10.0, cpu_s=2.5)
    assert figures["core_share"] == 0.25
    assert figures["sound_to_note_on_ms"]["p50"] == 40.0
    assert figures["frames_a_second"] == pytest.approx(86.0)
    assert figures["behind_ms_growth_a_minute"] == pytest.approx(240.0)
