"""Exported graphs beside torch, on one core.

    python -m model.export_onnx live live.onnx
    python -m model.export_onnx live live.int8.onnx --quantise
    python -m tests.benchmarks.onnx_graphs live.onnx live.int8.onnx

Prints the least milliseconds of many runs. Torch is held to AVX2 by
``ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2`` in the
environment; onnxruntime has no such setting.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from model import storage
from model.config import FRAMES, HOP, WINDOW
from model.fast.network import FastNetwork, fast_network
from model.onnx.export import BLOCK_FRAMES
from service.protocol.options import StreamOptions
from service.stream.windows import WindowSchedule
from tests.benchmarks.machine import describe, seconds


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="+", type=Path, metavar="OUT.onnx")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    ways: dict[str, Callable[[], object]] = {}
    for path in options.graphs:
        session = session_of(path)
        about = session.get_modelmeta().custom_metadata_map
        name, rate_hz = (json.loads(about[k]) for k in ("model", "sample_rate"))
        ways[f"window, {path}"] = running(session)
        ways[f"step, {path}"] = running(session_of(path.with_suffix(f".step{path.suffix}")))
    block = StreamOptions(block_frames=BLOCK_FRAMES)
    positions = WindowSchedule.of(block, rate_hz).positions
    for dtype in (torch.float32, torch.bfloat16):
        fast = fast_network(storage.load(name, dtype=dtype))
        assert fast is not None
        ways[f"window, {dtype}"] = whole_window(fast)
        ways[f"step, {dtype}"] = stream_step(fast, positions)
    print(*(f"{what} {value}" for what, value in describe().items()), sep=", ")
    print(f"onnxruntime {onnxruntime.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for way, run in ways.items():
        print(f"{way:<32} {1000 * min(seconds(run, options.runs)):6.1f} ms")
    return 0


def session_of(path: Path) -> onnxruntime.InferenceSession:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, settings)


def running(session: onnxruntime.InferenceSession) -> Callable[[], object]:
    """A graph on noise; a step's state does too."""
    rng = np.random.default_rng(0)
    feed = {
        entry.name: rng.normal(0, 0.1, [1, *entry.shape[1:]]).astype(np.float32)
        for entry in session.get_inputs()
    }
    return lambda: session.run(None, feed)


def whole_window(fast: FastNetwork) -> Callable[[], object]:
    """All frames, nothing kept from a window before."""
    positions, window = slice(0, FRAMES), 0.1 * torch.randn(WINDOW)
    return lambda: fast.predict_rows([fast.open_stream(positions).advance(window, 1)], positions)


def stream_step(fast: FastNetwork, positions: slice) -> Callable[[], object]:
    """What the service computes for the next block of a stream."""
    stream, audio = fast.open_stream(positions), 0.1 * torch.randn(WINDOW)
    hops = BLOCK_FRAMES

    def step() -> None:
        audio[:] = torch.cat([audio[hops * HOP :], 0.1 * torch.randn(hops * HOP)])
        fast.predict_rows([stream.advance(audio, hops)], positions)

    for _ in range(FRAMES):  # until it keeps what it can
        step()
    return step


if __name__ == "__main__":
    sys.exit(main())
