"""Runners compute the windows of many streams with a model on one device.

``rows`` converts each window of a stream to a row: either its features, for which results of the
stream's earlier windows are reused, or the window itself. ``predict`` maps a batch of rows, also of
different streams, to probabilities.

On a CPU, a runner uses one core, and a window's result has the same bits in every batch. One runner
per core is faster than splitting each small matrix product over all cores.
"""

import threading
import time
import timeit
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from model.config import FRAMES, HOP, WINDOW, ModelConfig
from model.fast.network import FastNetwork, NetworkStream, fast_network
from model.transcriber import FeatureStream
from model.transcriber import TranscriptionModel as Network
from service.engine.cuda_graphs import MAX_STEP_MS, GraphRunner
from service.stream.windows import (
    MAX_WINDOWS_PER_BATCH,
    PendingWindows,
    Probabilities,
    common_positions,
)

_TYPICAL_POSITIONS = slice(48, 56)  # 8 frames with a look-ahead of 8 hops (93 ms)
_TIMED_RUNS = 3
_thread_setting_lock = threading.Lock()


class EngineModel(Protocol):
    """The part of ``model.transcriber.TranscriptionModel`` that runners use."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    def open_stream(self) -> FeatureStream: ...
    def predict_features(self, features: Tensor) -> Tensor: ...


class Runner(Protocol):
    """A model on its device. ``batch_windows``: recommended maximum number of windows per batch."""

    batch_windows: int

    def open_stream(self) -> FeatureStream:
        """Return the state of a new stream."""
        ...

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        """Return a row for each of the stream's next windows, including the pre-roll."""
        ...

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Return the probabilities of rows, float32 [rows, heads, positions, PITCHES]."""
        ...


class PlainRunner:
    """Runner for any model. Computes each row separately."""

    batch_windows = 1

    def __init__(self, transcriber: EngineModel) -> None:
        self._transcriber = transcriber
        self._device = device_of(transcriber)

    def open_stream(self) -> FeatureStream:
        return self._transcriber.open_stream()

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        return [
            stream.advance(torch.from_numpy(view).to(self._device), due.new_hops, shift)
            for view, shift in due.iter_windows()
        ]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        separate = [self._transcriber.predict_features(row[None]) for row in rows]
        return torch.cat(separate)[:, :, positions].cpu().numpy()


class CpuRunner:
    """Runner for a ``FastNetwork`` on one CPU core."""

    batch_windows = MAX_WINDOWS_PER_BATCH

    def __init__(self, fast: FastNetwork) -> None:
        self._fast = fast
        # By number of rows and range of positions: True if a batch gives the same bits as its rows
        # one by one.
        self._exact_batches: dict[tuple[int, int, int], bool] = {}
        # By number of windows and hops between them: True if the front-end computes the same bits
        # for these windows together as one by one.
        self._exact_windows: dict[tuple[int, int], bool] = {}

    def open_stream(self) -> FeatureStream:
        return self._fast.open_stream(_TYPICAL_POSITIONS)  # ``rows`` sets those of each window

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        """Compute windows together only if this gives the same bits as one by one."""
        assert isinstance(stream, NetworkStream)
        stream.frames = range(FRAMES)[due.positions]
        rows: list[Tensor] = []
        for shift, group in groupby(due.iter_windows(), key=itemgetter(1)):
            windows = [torch.from_numpy(view) for view, _ in group]
            rows += self._rows(stream, windows, due, shift)
        return rows

    def _rows(
        self, stream: NetworkStream, windows: list[Tensor], due: PendingWindows, shift: int
    ) -> list[Tensor]:
        rows: list[Tensor] = []
        while len(windows) > 1:
            if stream.can_batch(due.new_hops) and self._is_exact(len(windows), due.new_hops):
                return rows + stream.advance_batch(windows, due.new_hops, shift)
            rows.append(stream.advance(windows.pop(0), due.new_hops, shift))
        return rows + [stream.advance(window, due.new_hops, shift) for window in windows]

    def _is_exact(self, windows: int, new_hops: int) -> bool:
        """True if computing this number of windows together gives the same bits as one by one.
        The two are compared once, on noise."""
        key = (windows, new_hops)
        if key not in self._exact_windows:
            generator = torch.Generator().manual_seed(0)
            noise = 0.1 * torch.randn(WINDOW + windows * new_hops * HOP, generator=generator)
            first, *others = noise.unfold(0, WINDOW, new_hops * HOP)
            single = self._fast.open_stream(_TYPICAL_POSITIONS)
            batched = self._fast.open_stream(_TYPICAL_POSITIONS)
            for stream in (single, batched):
                stream.advance(first, new_hops)
            expected = [single.advance(window, new_hops) for window in others]
            rows = batched.advance_batch(others, new_hops)
            self._exact_windows[key] = all(map(torch.equal, rows, expected))
        return self._exact_windows[key]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Compute rows together only if this gives the same bits as one by one. The first batch of
        each shape is computed both ways, because the CPU has different kernels for each shape."""
        shape = (len(rows), positions.start, positions.stop)
        is_exact = self._exact_batches.get(shape)
        if len(rows) == 1 or is_exact is False:
            return self._one_by_one(rows, positions).numpy()
        batch = self._fast.predict_rows(rows, positions)
        if is_exact is None:
            expected = self._one_by_one(rows, positions)
            self._exact_batches[shape] = torch.equal(batch, expected)
            return expected.numpy()
        return batch.numpy()

    def _one_by_one(self, rows: Sequence[Tensor], positions: slice) -> Tensor:
        return torch.cat([self._fast.predict_rows([row], positions) for row in rows])


def device_of(transcriber: EngineModel) -> torch.device:
    """Return the device of a model's weights."""
    if isinstance(transcriber, torch.nn.Module):
        return next(transcriber.parameters(), torch.empty(0)).device
    return torch.device("cpu")


def make_runner(transcriber: EngineModel) -> Runner:
    """Return the fastest runner for a model on the device of its weights."""
    if isinstance(transcriber, Network):
        device = device_of(transcriber)
        fast = fast_network(transcriber)
        if fast is not None and device.type == "cpu":
            return CpuRunner(fast)
        if fast is not None and device.type == "cuda":
            graphs = GraphRunner(fast, device, common_positions(transcriber.config))
            graphs.warm_up()
            return graphs
    return PlainRunner(transcriber)


def compute(runner: Runner, stream: FeatureStream, due: PendingWindows) -> Probabilities:
    """Return the probabilities [due.windows, heads, positions, PITCHES] of pending windows."""
    rows = runner.rows(stream, due)[due.preroll :]
    if not rows:
        return np.zeros((0, 0, 0, 0), np.float32)
    return runner.predict(rows, due.positions)


def calibrate(runner: Runner, device: torch.device) -> float:
    """Return the time per window of a full batch of live streams in s. On a CPU, first limit
    ``batch_windows`` so that a batch takes at most MAX_STEP_MS."""
    if device.type == "cpu":
        max_windows = int(MAX_STEP_MS / 1000 / _batch_s(runner, device, 1))
        runner.batch_windows = max(1, min(runner.batch_windows, max_windows))
    return _batch_s(runner, device, runner.batch_windows) / runner.batch_windows


def _batch_s(runner: Runner, device: torch.device, windows: int) -> float:
    """Return the time in s of a batch with one window of each of ``windows`` streams: the minimum
    of several runs, because other programs may slow down some runs."""
    positions = _TYPICAL_POSITIONS
    streams = [runner.open_stream() for _ in range(windows)]
    due = PendingWindows(
        np.zeros(WINDOW, np.float32), 1, positions.stop - positions.start, positions
    )

    def run() -> None:
        runner.predict([row for stream in streams for row in runner.rows(stream, due)], positions)

    timer = time.thread_time if device.type == "cpu" else time.perf_counter
    return max(1e-9, min(timeit.repeat(run, timer=timer, repeat=_TIMED_RUNS, number=1)))


def configure_torch_thread() -> None:
    """Limit torch to one core in the calling thread, and make it round denormal numbers to zero.
    Otherwise, audio that fades out below 1e-38 would make the front-end 50 times slower, because
    x86 CPUs process denormal numbers in microcode."""
    torch.set_flush_denormal(True)  # affects this thread only
    torch.get_num_threads()  # initialises the default, which would replace the count later
    with _thread_setting_lock, ThreadPoolExecutor(1) as other_thread:
        # `set_num_threads` also changes the default for threads that start later. Another thread
        # restores this default, which belongs to the caller, without a change to this thread.
        default = other_thread.submit(torch.get_num_threads).result()
        torch.set_num_threads(1)
        other_thread.submit(torch.set_num_threads, default).result()
