"""Long sequences: time and memory from 1 K to 2 M symbols, and how the time grows.

A process of its own runs each length, so that its peak memory is that length's. Growth like
n log n shows as an exponent a little above one.
"""

import argparse
import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import torch

from model.config import RSEConfig
from model.fast.shuffle_exchange import FastShuffleExchange
from model.rse import ResidualShuffleExchange
from model.storage import fastest_dtype
from tests.benchmarks.machine import peak_mb, seconds, spread

MAPS, BLOCKS = 192, 2  # the paper's width and depth
SHORTEST, LONGEST = 1 << 10, 1 << 21  # symbols
QUICK_LONGEST = 1 << 16
FIT_FROM = 1 << 13  # shorter ones are ruled by what every layer costs anyhow
ONCE_FROM = 1 << 18  # seconds and more: one run, after a short sequence
ON_GPU = "cuda"


def run(options: argparse.Namespace) -> dict[str, Any]:
    """In the fastest number format."""
    devices = ["cpu", *([ON_GPU] if torch.cuda.is_available() else [])]
    longest = QUICK_LONGEST if options.quick else LONGEST
    figures: dict[str, Any] = {}
    for device in devices:
        rows: dict[int, dict[str, Any]] = {}
        length = SHORTEST
        while length <= longest:
            command = [sys.executable, "-m", "tests.benchmarks.network.long", str(length), device]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            rows[length] = json.loads(output)
            print(f"{device}: {length} symbols, {rows[length]}", file=sys.stderr)
            length *= 2
        figures[f"m={MAPS}, {BLOCKS} blocks, {device}"] = {
            "number_format": str(fastest_dtype(torch.device(device))).removeprefix("torch."),
            **{f"{length} symbols": row for length, row in rows.items()},
            **growth({length: row["seconds"]["median"] for length, row in rows.items()}),
        }
    return figures


def growth(taken: dict[int, float]) -> dict[str, float]:
    """The exponent of the time by length, and that of n log n over the same lengths."""
    lengths = [length for length in taken if length >= FIT_FROM]
    logs = [math.log(length) for length in lengths]

    def exponent(values: list[float]) -> float:
        return float(np.polyfit(logs, np.log(values), 1)[0])

    return {
        "exponent": exponent([taken[length] for length in lengths]),
        "exponent_of_n_log_n": exponent([length * math.log(length) for length in lengths]),
    }


def measure(length: int, device: str) -> dict[str, Any]:
    """Time and peak memory of one length."""
    torch.manual_seed(0)
    network = ResidualShuffleExchange(RSEConfig(maps=MAPS, blocks=BLOCKS)).eval().to(device)
    fast = FastShuffleExchange(network, fastest_dtype(torch.device(device)))

    def work(x: torch.Tensor) -> None:
        with torch.inference_mode():
            fast(x, range(x.shape[1]))
        if device == ON_GPU:
            torch.cuda.synchronize()

    x = torch.randn(1, length, MAPS, device=device).mul_(0.25)
    long = length >= ONCE_FROM
    warm = x[:, : ONCE_FROM // 16] if long else x
    taken = seconds(lambda: work(x), runs=1 if long else 3, warm_up=lambda: work(warm))
    found: dict[str, Any] = {"seconds": spread(taken), "peak_mb": peak_mb()}
    if device == ON_GPU:
        found["gpu_peak_mb"] = torch.cuda.max_memory_allocated() / 1e6
    return found


def main() -> None:
    """The measuring process; arguments: LENGTH DEVICE."""
    length, device = sys.argv[1:]
    print(json.dumps(measure(int(length), device)))


if __name__ == "__main__":
    main()
