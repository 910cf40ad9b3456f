"""On a GPU: batches and streams."""

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

WAYS = {
    "centre": StreamOptions(lookahead_ms=372, block_frames=1),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
}
BATCHES, QUICK_BATCHES = (8, 16, 32, 64, 128, 256), (8, 64)
CUDA = torch.device("cuda")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Nothing but a word where there is no GPU."""
    if not torch.cuda.is_available():
        return {"skipped": "no CUDA device"}
    runs = 5 if options.quick else 20
    batches = QUICK_BATCHES if options.quick else BATCHES
    return {config.name: network(config, batches, runs) for config in (LIVE, ACCURATE)}


def timed(work: Callable[[], object], runs: int) -> list[float]:
    """Seconds of each run, to its end on the GPU."""

    def whole() -> None:
        work()
        torch.cuda.synchronize()

    for _ in range(3):
        whole()
    return seconds(whole, runs)


def network(config: ModelConfig, batches: tuple[int, ...], runs: int) -> dict[str, Any]:
    """Windows a second and streams in real time, as the service runs batches; the plain network."""
    torch.manual_seed(0)
    schedules = {way: WindowSchedule.of(stream, config) for way, stream in WAYS.items()}
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
            plain = timed(partial(transcriber.predict, rows), runs)
            figures[f"plain, batch {batch}"] = {
                "windows_a_second": spread([batch / s for s in plain])
            }
            for way, schedule in schedules.items():
                times = timed(partial(runner.predict, shifted, schedule.positions), runs)
                speeds = [batch / s for s in times]
                wanted = config.sample_rate / HOP / schedule.block_frames  # windows/s of a stream
                figures[f"service, {way}, batch {batch}"] = {
                    "windows_a_second": spread(speeds),
                    "streams_in_real_time": spread([speed / wanted for speed in speeds]),
                }
        except torch.OutOfMemoryError:
            figures[f"batch {batch}"] = "out of memory"
            break
    return figures
