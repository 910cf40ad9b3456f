"""On a GPU: batches and streams, as fractions of the rate of a large bfloat16 product there."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from model.config import ACCURATE, HOP, LIVE, WINDOW, ModelConfig
from model.fast.network import FastNetwork, fast_network
from model.transcriber import FilterbankNetwork, TranscriptionModel
from service.engine.cuda_graphs import GraphRunner
from service.protocol.options import StreamOptions
from service.stream.windows import WindowSchedule
from tests.benchmarks.machine import seconds, spread

WAYS = {
    "centre": StreamOptions(lookahead_ms=372, block_frames=1),
    "block of 8, 100 ms": StreamOptions(block_frames=8),
}
BATCHES, QUICK_BATCHES = (8, 16, 32, 64, 128, 256), (8, 64)
SIDE = 8192  # of the square product that gives the rate
CUDA = torch.device("cuda")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Nothing but a word where there is no GPU."""
    if not torch.cuda.is_available():
        return {"skipped": "no CUDA device"}
    runs = 5 if options.quick else 20
    a, b = (torch.randn(SIDE, SIDE, device=CUDA, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * SIDE**3 / min(timed(partial(torch.mm, a, b), runs))
    figures: dict[str, Any] = {"bf16_tflops": rate / 1e12}
    batches = QUICK_BATCHES if options.quick else BATCHES
    for config in (LIVE, ACCURATE):
        figures[config.name] = network(config, batches, rate, runs)
    return figures


def timed(work: Callable[[], object], runs: int) -> list[float]:
    """Seconds of each run, to its end on the GPU."""

    def whole() -> None:
        work()
        torch.cuda.synchronize()

    for _ in range(3):
        whole()
    return seconds(whole, runs)


def network(
    config: ModelConfig, batches: tuple[int, ...], rate: float, runs: int
) -> dict[str, Any]:
    """Windows a second and streams in real time, as the service runs batches; the plain network."""
    torch.manual_seed(0)
    transcriber = TranscriptionModel(config).eval()
    fast = fast_network(transcriber)
    assert fast is not None
    schedules = {way: WindowSchedule.of(stream, config) for way, stream in WAYS.items()}
    work = {  # on the processor: a GPU's own kernel is not counted
        way: window_flops(transcriber, fast, schedule.positions)
        for way, schedule in schedules.items()
    }
    transcriber = transcriber.to(CUDA).compute_in(torch.bfloat16)
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
                wanted = config.sample_rate / HOP / schedule.block_frames  # of a stream
                figures[f"service, {way}, batch {batch}"] = {
                    "windows_a_second": spread(speeds),
                    "streams_in_real_time": spread([speed / wanted for speed in speeds]),
                    "gflop_a_window": work[way] / 1e9,
                    "fraction_of_bf16_rate": spread([speed * work[way] / rate for speed in speeds]),
                }
        except torch.OutOfMemoryError:
            figures[f"batch {batch}"] = "out of memory"
            break
    return figures


def window_flops(transcriber: TranscriptionModel, fast: FastNetwork, positions: slice) -> int:
    """Of the products and convolutions behind the filterbank, for a window read at these frames."""

    def product(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a[0] * a[1] * b[1]

    def counter() -> FlopCounterMode:  # torch leaves out sums in place
        mapping = {torch.ops.aten.addmm_: product}
        return FlopCounterMode(display=False, custom_mapping=mapping)

    row = transcriber.open_stream().advance(torch.zeros(WINDOW), 1)
    with counter() as all_of_it:
        fast.predict(row[None], positions)
    with counter() as filters:
        if isinstance(transcriber.network, FilterbankNetwork):
            transcriber.network.filterbank(row[None])
    return int(all_of_it.get_total_flops() - filters.get_total_flops())
