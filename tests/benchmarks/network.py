"""The network alone: windows a second of each arrangement, and the gated baseline beside it.

Batches run as the service runs them on this machine: on a processor each core has windows of its
own (the plain network, which the service would run with all cores, has all of them).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model import checkpoint
from model.config import HOP, PAPER, WINDOW, RSEConfig
from model.fast_network import fast_network
from model.precision import fastest_dtype
from model.rse import ResidualShuffleExchange
from model.transcriber import Transcriber
from service.options import FILE_OPTIONS, Mode, StreamOptions
from service.runners import available_cores
from service.windows import WindowSchedule
from tests.benchmarks.machine import seconds, spread

BATCHES = (1, 4, 16, 64)
WAYS = {
    "centre": StreamOptions(mode=Mode.CENTRE),
    "block of 4, 100 ms": StreamOptions(),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
    "file": FILE_OPTIONS,
}
LARGE = 16  # windows at once that the full-size network is measured with, at most, on a processor


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Windows a second of the shipped models and of the paper's, and the baseline's ratios."""
    batches = BATCHES[:3] if options.quick else BATCHES
    runs = 3 if options.quick else 7
    figures: dict[str, Any] = {}
    for name in checkpoint.shipped():
        figures[name] = arrangements(partial(load, name), batches, runs)
    # Random weights take as long as trained ones.
    large = [batch for batch in batches if batch <= (4 if options.quick else LARGE)]
    figures["paper"] = arrangements(paper, large, 1 if options.quick else 3)
    figures["gated baseline"] = baseline(runs)
    return figures


def load(name: str, dtype: torch.dtype) -> Transcriber:
    """Shipped weights."""
    return checkpoint.load(name, dtype=dtype)


def paper(dtype: torch.dtype) -> Transcriber:
    """The paper's network, full size."""
    torch.manual_seed(0)
    return Transcriber(PAPER).eval().compute_in(dtype)


def arrangements(
    make: Callable[[torch.dtype], Transcriber], batches: Sequence[int], runs: int
) -> dict[str, Any]:
    """Windows a second, and times real time of a stream, by precision, arrangement and batch."""
    figures: dict[str, Any] = {}
    for dtype in dict.fromkeys([torch.float32, fastest_dtype(torch.device("cpu"))]):
        transcriber = make(dtype)
        precision = str(dtype).removeprefix("torch.")
        row = transcriber.open_stream().advance(0.1 * torch.randn(WINDOW), 1)
        for batch in batches:
            rows = torch.stack([row] * batch)
            for kind, times in plain(transcriber, rows, runs).items():
                speeds = [batch / s for s in times]
                figures[f"{precision}, {kind}, batch {batch}"] = {
                    "windows_a_second": spread(speeds)
                }
            for way, stream in WAYS.items():
                schedule = WindowSchedule.of(stream, transcriber.config.sample_rate)
                times = on_cores(transcriber, rows, schedule.positions, runs)
                speeds = [batch / s for s in times]
                block_s = schedule.block_frames * HOP / transcriber.config.sample_rate
                figures[f"{precision}, service, {way}, batch {batch}"] = {
                    "windows_a_second": spread(speeds),
                    "times_real_time": spread([speed * block_s for speed in speeds]),
                }
    return figures


def plain(transcriber: Transcriber, rows: Tensor, runs: int) -> dict[str, list[float]]:
    """Seconds of a batch by the plain network, and compiled where there is a C++ compiler."""
    times = {"plain": seconds(lambda: transcriber.predict_features(rows), runs)}
    if shutil.which("g++"):
        compiled = torch.compile(transcriber.predict_features)
        times["compiled"] = seconds(lambda: compiled(rows), runs)
    return times


def on_cores(transcriber: Transcriber, rows: Tensor, positions: slice, runs: int) -> list[float]:
    """Seconds of a batch that cores share, each computing up to four of its windows at a time."""
    fast = fast_network(transcriber)
    assert fast is not None
    cores = available_cores()
    parts = rows.split(max(1, min(4, len(rows) // cores)))

    def alone(part: Tensor) -> Tensor:
        torch.set_num_threads(1)  # of this thread
        return fast.predict_features(part, positions)

    with ThreadPoolExecutor(cores) as pool:
        return seconds(lambda: list(pool.map(alone, parts)), runs)


def baseline(runs: int) -> dict[str, Any]:
    """How much longer the gated network takes, at inference and for a training step."""
    residual = RSEConfig(maps=96, blocks=2, dropout=0.0)
    networks = {
        "residual": ResidualShuffleExchange(residual),
        "gated": ResidualShuffleExchange(replace(residual, unit="gated")),
    }
    x = 0.25 * torch.randn(4, 1024, residual.maps)
    taken: dict[str, dict[str, list[float]]] = {}
    for name, network in networks.items():

        def step(network: ResidualShuffleExchange = network) -> None:
            network.zero_grad()
            network(x).square().mean().backward()

        def infer(network: ResidualShuffleExchange = network) -> None:
            with torch.inference_mode():
                network(x)

        taken[name] = {"inference": seconds(infer, runs), "training": seconds(step, runs)}
    return {
        f"gated over residual, {use}": spread(
            [g / r for g, r in zip(taken["gated"][use], taken["residual"][use], strict=True)]
        )
        for use in ("inference", "training")
    }
