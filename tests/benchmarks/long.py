"""Long sequences: time and memory from 1 K to 2 M symbols, and how the time grows.

A process of its own runs all lengths in rising order, so that its peak memory after each is that
length's. Growth like n log n shows as an exponent a little above one.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from model.config import RSEConfig
from model.fast_switch import FastShuffleExchange
from model.precision import fastest_dtype
from model.rse import ResidualShuffleExchange
from tests.benchmarks.machine import peak_mb

SHORTEST, LONGEST = 1 << 10, 1 << 21  # symbols
QUICK_LONGEST = 1 << 17
FIT_FROM = 1 << 13  # shorter ones are ruled by what every layer costs anyhow
ON_GPU = "cuda"


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Networks of two blocks: a small one, and one of the paper's width unless quick."""
    devices = ["cpu", *([ON_GPU] if torch.cuda.is_available() else [])]
    widths = [16] if options.quick else [16, options.maps]
    figures: dict[str, Any] = {}
    for device in devices:
        for maps in widths:
            longest = QUICK_LONGEST if options.quick else LONGEST
            command = [sys.executable, "-m", "tests.benchmarks.long"]
            command += [str(maps), str(longest), device, str(options.blocks)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            figures[f"m={maps}, {device}"] = json.loads(output)
    return figures


def main() -> None:
    """The measuring process: ``python -m tests.benchmarks.long MAPS LONGEST DEVICE BLOCKS``."""
    maps, longest, device, blocks = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
    )
    torch.manual_seed(0)
    network = ResidualShuffleExchange(RSEConfig(maps=maps, blocks=blocks)).eval().to(device)
    dtype = fastest_dtype(torch.device(device))
    fast = FastShuffleExchange(network, dtype)
    lengths, times, rows = [], [], {}
    length = SHORTEST
    while length <= longest:
        x = torch.randn(1, length, maps, device=device).mul_(0.25)
        taken = []
        for _ in range(3 if length < 1 << 16 else 1):
            began = time.perf_counter()
            with torch.inference_mode():
                fast(x, range(length))
            if device == ON_GPU:
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
        seconds = min(taken)
        on_gpu = (
            {"gpu_peak_mb": torch.cuda.max_memory_allocated() / 1e6} if device == ON_GPU else {}
        )
        rows[str(length)] = {"seconds": seconds, "peak_mb": peak_mb(), **on_gpu}
        print(f"m={maps} {device}: {length} symbols, {rows[str(length)]}", file=sys.stderr)
        if length >= FIT_FROM:
            lengths.append(math.log(length))
            times.append(math.log(seconds))
        length *= 2
    exponent = float(np.polyfit(lengths, times, 1)[0])
    n_log_n = [k + math.log(k) for k in lengths]
    print(
        json.dumps(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "blocks": blocks,
                "lengths": rows,
                "exponent": exponent,
                "exponent_of_n_log_n": float(np.polyfit(lengths, n_log_n, 1)[0]),
            }
        )
    )


if __name__ == "__main__":
    main()
