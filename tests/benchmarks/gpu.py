"""Benchmark of batches and streams on a GPU."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from model.config import ACCURATE, HOP, LIVE, WINDOW, ModelConfig
from model.fast.network import fast_network
from model.transcriber import TranscriptionModel
from service.engine.cuda_graphs import GraphRunner
from service.protocol.options import StreamOptions
from service.stream.windows import WindowSchedule
from tests.benchmarks.machine import seconds, spread

STREAMS = {
    "centre": StreamOptions(lookahead_ms=372, block_frames=1),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
}
BATCHES, QUICK_BATCHES = (8, 16, 32, 64, 128, 256), (8, 64)
CUDA = torch.device("cuda")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the networks ``live`` and ``accurate``, if there is a GPU."""
    if not torch.cuda.is_available():
        return {"skipped": "no CUDA device"}
    runs = 5 if options.quick else 20
    batches = QUICK_BATCHES if options.quick else BATCHES
    return {config.name: measure_network(config, batches, runs) for config in (LIVE, ACCURATE)}


def gpu_seconds(work: Callable[[], object], runs: int) -> list[float]:
    """Return the time of each run in seconds, until the GPU is idle."""

    def run() -> None:
        work()
        torch.cuda.synchronize()

    for _ in range(3):
        run()
    return seconds(run, runs)


def measure_network(config: ModelConfig, batches: tuple[int, ...], runs: int) -> dict[str, Any]:
    """Return windows per second of the plain network and of the service's runner, and the number of
    streams that the runner processes in real time."""
    torch.manual_seed(0)
    schedules = {name: WindowSchedule.of(stream, config) for name, stream in STREAMS.items()}
    transcriber = TranscriptionModel(config).eval().to(CUDA).compute_in(torch.bfloat16)
    fast = fast_network(transcriber)
    assert fast is not None
    runner = GraphRunner(fast, CUDA, common=[])
    figures: dict[str, Any] = {}
    for batch in batches:
        windows = [torch.randn(config.context + WINDOW) * 0.1] * batch
        rows = torch.stack(windows).to(CUDA)
        shifted = [torch.cat([window, torch.zeros(1)]) for window in windows]
        try:
            times_s = gpu_seconds(partial(transcriber.predict, rows), runs)
            figures[f"plain, batch {batch}"] = {
                "windows_per_second": spread([batch / s for s in times_s])
            }
            for name, schedule in schedules.items():
                times_s = gpu_seconds(partial(runner.predict, shifted, schedule.positions), runs)
                speeds = [batch / s for s in times_s]
                stream_windows_per_s = config.sample_rate / HOP / schedule.block_frames
                streams = [speed / stream_windows_per_s for speed in speeds]
                figures[f"service, {name}, batch {batch}"] = {
                    "windows_per_second": spread(speeds),
                    "streams_in_real_time": spread(streams),
                }
        except torch.OutOfMemoryError:
            figures[f"batch {batch}"] = "out of memory"
            break
    return figures
