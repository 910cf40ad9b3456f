"""The network alone, as the service runs it on one core, for each way of emitting frames."""

import argparse
import sys
from functools import partial
from typing import Any

import torch

from model import storage
from model.config import HOP, WINDOW
from model.fast.network import fast_network
from model.storage import fastest_dtype
from model.transcriber import TranscriptionModel
from service.engine.runners import CpuRunner, compute
from service.protocol.options import FILE_OPTIONS, StreamOptions
from service.stream.windows import Due, WindowSchedule
from tests.benchmarks.machine import seconds, spread
from tests.benchmarks.network.work import matrix_rate, streamed_flops

STREAMS = {
    "centre": StreamOptions(lookahead_ms=372, block_frames=1),
    "block of 4, 100 ms": StreamOptions(),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
    "file": FILE_OPTIONS,
}
CPU = torch.device("cpu")
SIDE = 2048  # of the product that gives the processor's rate


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Windows a second of the shipped models."""
    torch.set_num_threads(1)
    runs = 20 if options.quick else 200
    figures: dict[str, Any] = {}
    for dtype in dict.fromkeys([torch.float32, fastest_dtype(CPU)]):
        rate = matrix_rate(SIDE, dtype, CPU, 12, lambda: None)
        precision = str(dtype).removeprefix("torch.")
        figures[precision] = {"matrix_rate_gflops": rate / 1e9} | {
            name: model(storage.load(name, dtype=dtype), rate, runs) for name in storage.shipped()
        }
    return figures


def model(transcriber: TranscriptionModel, rate: float, runs: int) -> dict[str, Any]:
    """A network's figures by way of emitting frames."""
    fast = fast_network(transcriber)
    assert fast is not None
    runner = CpuRunner(fast)
    sample_rate = transcriber.config.sample_rate
    window = (0.1 * torch.randn(WINDOW)).numpy()
    figures = {}
    for way, options in STREAMS.items():
        schedule = WindowSchedule.of(options, transcriber.config)
        hops, positions = schedule.block_frames, schedule.positions
        stream, due = runner.open_stream(positions), Due(window, 1, hops, positions)
        times = seconds(partial(compute, runner, stream, due), runs)
        windows = spread([1 / s for s in times])
        work = streamed_flops(fast, positions, hops)
        length_s = hops * HOP / sample_rate  # of audio that a window answers for
        figures[way] = {
            "windows_a_second": windows,
            "times_real_time": spread([length_s / s for s in times]),
            "gflop_a_window": work / 1e9,
            "fraction_of_matrix_rate": windows["median"] * work / rate,
        }
        print(f"{transcriber.config.name}, {way}", file=sys.stderr)
    return figures
