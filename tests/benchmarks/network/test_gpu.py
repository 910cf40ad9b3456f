"""The benchmark of a GPU from end to end, with a processor in its place; nothing is timed here."""

import argparse
from dataclasses import replace
from functools import partial

import pytest
import torch

from model.config import ACCURATE, LIVE, PAPER, FilterbankConfig, RSEConfig
from service.engine.cuda_graphs import GraphRunner
from tests.benchmarks.__main__ import rows
from tests.benchmarks.network import gpu
from tests.service.engine.test_cuda_graphs import again

SMALL = RSEConfig(maps=8, blocks=1)


def test_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a processor that is called a GPU, and small networks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    small = FilterbankConfig(channels=4, convolutions=1)
    for name, value in {
        "CUDA": torch.device("cpu"),
        "GraphRunner": partial(GraphRunner, capture=again),
        "PAPER": replace(PAPER, rse=SMALL),
        "LIVE": replace(LIVE, rse=SMALL, front_end=small),
        "ACCURATE": replace(ACCURATE, rse=SMALL, front_end=small),
        "MAPS": (8,),
        "POSITIONS": 8,
        "SIDE": 16,
        "COPIED": 1 << 10,
        "QUICK_BATCHES": (2,),
    }.items():
        monkeypatch.setattr(gpu, name, value)
    figures = gpu.run(argparse.Namespace(quick=True))
    assert {"bf16_tflops", "bandwidth_gb_s", "triton"} <= set(figures)
    assert "FastSwitch" in figures["switch layer, m=8"]
    for name in ("paper", "live", "accurate"):
        assert figures[name]["plain, batch 2"]["windows_a_second"]["runs"] == 5
        centre = figures[name]["service, centre, batch 2"]
        assert centre["streams_in_real_time"]["median"] > 0
        assert centre["fraction_of_bf16_rate"]["median"] > 0
        block = figures[name]["service, block of 8, 100 ms, batch 2"]
        assert block["gflop_a_window"] > centre["gflop_a_window"] > 0
    assert rows(figures)
