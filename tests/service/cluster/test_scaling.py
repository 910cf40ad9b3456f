"""How many model replicas are wanted, from what they report."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.cluster.scaling import StepTimePolicy


def context(replicas: int, busy: list[float], streams: list[float]) -> Any:
    reports = {"busy": busy, "streams": streams}
    return SimpleNamespace(
        current_num_replicas=replicas,
        target_num_replicas=7,
        aggregated_metrics={
            name: dict(enumerate(values)) for name, values in reports.items() if values
        },
    )


@pytest.mark.parametrize(
    ("replicas", "busy", "streams", "wanted"),
    [
        (2, [0.9, 0.6], [10, 10], 3),
        (4, [0.1, 0.1, 0.1, 0.1], [1, 1, 1, 1], 0.8),
        (2, [0.1, 0.1], [150, 250], 4),  # too many streams for one replica, whatever their steps
        (3, [0.5, 0.5], [10, 10], 3),  # one has not reported yet
        (2, [], [], 7),  # nothing is known: as it is
    ],
)
def test_steps_and_streams_ask_for_replicas(
    replicas: int, busy: list[float], streams: list[float], wanted: float
) -> None:
    policy = StepTimePolicy(target_busy=0.5, max_streams=100)
    assert policy(context(replicas, busy, streams))[0] == pytest.approx(wanted)
