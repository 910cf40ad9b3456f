"""The search for the most streams, and the table of figures; nothing is timed here."""

from __future__ import annotations

import pytest

from model.config import FRAMES, PAPER
from service.options import Mode, StreamOptions
from service.windows import WindowSchedule
from tests.benchmarks.__main__ import rows
from tests.benchmarks.gpu import window_flops
from tests.benchmarks.machine import spread
from tests.benchmarks.streams import MOST, search


@pytest.mark.parametrize("most", [0, 1, 2, 3, 5, 8, 13, 200, MOST])
def test_the_search_ends_within_an_eighth_below_what_is_carried(most: int) -> None:
    tried: list[int] = []

    def carried(count: int) -> bool:
        tried.append(count)
        return count <= most

    best = search(carried)
    assert best <= most <= best + max(0, best // 8)
    assert len(tried) <= 20


def test_operations_of_the_papers_network() -> None:
    every = window_flops(PAPER, WindowSchedule(lookahead_hops=1, block_frames=FRAMES))
    layers = 2 * 2 * 10 + 1
    assert 0.9 < every / (layers * 1024 * 2 * 16 * 192**2) <= 1  # 49.5 GFLOP unpruned
    centre = WindowSchedule.of(StreamOptions(mode=Mode.CENTRE), PAPER.sample_rate)
    assert window_flops(PAPER, centre) < every


def test_a_line_for_each_figure() -> None:
    figures = {"a": {"b": spread([3.0, 1.0, 2.0]), "c": {"d": 0.123456}}, "e": "text"}
    assert rows(figures) == [
        ("a / b", "2 (1 ... 3)"),
        ("a / c / d", "0.1235"),
        ("e", "text"),
    ]
