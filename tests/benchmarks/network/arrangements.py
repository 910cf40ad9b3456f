"""The network alone: windows a second of each arrangement.

"plain" is the network as it is trained, one batch on all cores; "arranged" is what the service
runs, as it runs it on this machine, for each way of emitting frames. Of "all frames" no switch unit
is left out: what pruning saves is the difference to the other ways.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

from model import storage
from model.config import FRAMES, HOP, WINDOW
from model.fast.network import fast_network
from model.storage import fastest_dtype
from model.transcriber import FeatureStream, TranscriptionModel
from service.engine.cores import available_cores
from service.engine.runners import CpuRunner
from service.protocol.options import FILE_OPTIONS, Mode, StreamOptions
from service.stream.windows import Due, WindowSchedule
from tests.benchmarks.machine import seconds, spread
from tests.benchmarks.network.work import matrix_rate, streamed_flops

BATCHES = (1, 4, 16, 64)
STREAMS = {
    "all frames": None,
    "centre": StreamOptions(mode=Mode.CENTRE),
    "block of 4, 100 ms": StreamOptions(),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
    "file": FILE_OPTIONS,
}
CPU = torch.device("cpu")
SIDE = 2048  # of the product that gives the processor's rate

Figures = dict[str, Any]


def run(options: argparse.Namespace) -> Figures:
    """Windows a second of the shipped models."""
    runs = 3 if options.quick else 5
    rates = {
        dtype: matrix_rate(SIDE, dtype, CPU, 4 * runs, lambda: None)
        for dtype in dict.fromkeys([torch.float32, fastest_dtype(CPU)])
    }
    figures: Figures = {}
    figures["matrix_rate_gflops"] = {
        precision_of(dtype): rate / 1e9 for dtype, rate in rates.items()
    }
    for name in storage.shipped():
        figures[name] = {}
        for dtype, rate in rates.items():
            transcriber = storage.load(name, dtype=dtype)
            figures[name] |= model(transcriber, rate, BATCHES[: 2 if options.quick else 4], runs)
    return figures


def model(
    transcriber: TranscriptionModel, rate: float, batches: Sequence[int], runs: int
) -> Figures:
    """A network's figures by arrangement, way and batch.

    Plain, it computes all frames; arranged, a worker for each core takes its share of a batch.
    """
    figures: Figures = {}
    precision, name = precision_of(transcriber.compute_dtype), transcriber.config.name
    row = transcriber.open_stream().advance(0.1 * torch.randn(WINDOW), 1)
    for batch in batches:
        rows = torch.stack([row] * batch)
        taken = seconds(partial(transcriber.predict_features, rows), runs)
        found: Figures = {"windows_a_second": spread([batch / s for s in taken])}
        figures[f"{precision}, plain, batch {batch}"] = found
        print(f"{name}, plain, batch {batch}", file=sys.stderr)
    fast = fast_network(transcriber)
    assert fast is not None
    sample_rate = transcriber.config.sample_rate
    runner = CpuRunner(fast)
    workers = available_cores()
    window = (0.1 * torch.randn(WINDOW)).numpy()
    figures[f"{precision}, arranged, workers"] = workers
    for way, stream in STREAMS.items():
        schedule = stream and WindowSchedule.of(stream, transcriber.config)
        positions = schedule.positions if schedule else slice(0, FRAMES)
        hops = schedule.block_frames if schedule else FRAMES // 2
        work = streamed_flops(fast, positions, hops)
        for batch in batches:
            share = min(runner.batch_windows, math.ceil(batch / workers))
            streams = [runner.open_stream(positions) for _ in range(batch)]
            parts = [streams[n : n + share] for n in range(0, batch, share)]

            def predict(
                part: list[FeatureStream], positions: slice = positions, hops: int = hops
            ) -> None:
                torch.set_num_threads(1)  # of this thread
                due = Due(window, 1, hops, positions)
                rows = [runner.rows(stream, due) for stream in part]
                runner.predict([row for (row,) in rows], positions)

            with ThreadPoolExecutor(workers) as pool:
                times = seconds(lambda: list(pool.map(predict, parts)), runs)  # noqa: B023
            windows = spread([batch / s for s in times])
            found = {"windows_a_second": windows}
            if stream is not None:
                length_s = hops * HOP / sample_rate  # of audio that a window answers for
                found["times_real_time"] = spread([length_s * batch / s for s in times])
            found["gflop_a_window"] = work / 1e9
            found["fraction_of_matrix_rate"] = windows["median"] * work / rate
            figures[f"{precision}, arranged, {way}, batch {batch}"] = found
        print(f"{name}, {precision}, {way}", file=sys.stderr)
    return figures


def precision_of(dtype: torch.dtype) -> str:
    """A number format's name."""
    return str(dtype).removeprefix("torch.")
