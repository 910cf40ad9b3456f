"""Runners compute the windows of many streams with a model on one device.

On a CPU a runner uses one core. One runner per core is faster than splitting each small matrix
product over all cores. The result of a window does not depend on the other windows of its batch,
bit for bit.
"""

from __future__ import annotations

import threading
import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from model.config import HOP, WINDOW, ModelConfig
from model.fast.network import FastNetwork, NetworkStream, fast_network
from model.transcriber import FeatureStream
from model.transcriber import TranscriptionModel as Network
from service.engine.cuda_graphs import GraphRunner
from service.stream.windows import (
    MAX_WINDOWS_PER_BATCH,
    PendingWindows,
    Probabilities,
    common_positions,
)

_TYPICAL_POSITIONS = slice(48, 56)
_TIMED_RUNS = 3
_thread_setting_lock = threading.Lock()


class EngineModel(Protocol):
    """Part of ``model.transcriber.TranscriptionModel`` that runners use."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    def open_stream(self) -> FeatureStream: ...
    def predict_features(self, features: Tensor) -> Tensor: ...


class Runner(Protocol):
    """A model on its device. Throughput hardly increases above ``batch_windows`` per batch."""

    @property
    def batch_windows(self) -> int: ...

    def open_stream(self, positions: slice) -> FeatureStream:
        """Return the front-end state of a stream whose windows are read at these positions."""
        ...

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        """Return the rows for ``predict`` of the stream's next windows, including the pre-roll."""
        ...

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Return float32 probabilities [rows, heads, positions, PITCHES]."""
        ...


class PlainRunner:
    """Runner of any transcriber. Computes each row alone."""

    batch_windows = 1

    def __init__(self, transcriber: EngineModel) -> None:
        self._transcriber = transcriber
        self._device = device_of(transcriber)

    def open_stream(self, positions: slice) -> FeatureStream:
        return self._transcriber.open_stream()

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        windows = [
            (torch.from_numpy(view).to(self._device), shift) for view, shift in due.iter_windows()
        ]
        return [stream.advance(window, due.new_hops, shift) for window, shift in windows]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        alone = [self._transcriber.predict_features(row[None]) for row in rows]
        return torch.cat(alone)[:, :, positions].cpu().numpy()


class CpuRunner:
    """Runner of a network that is optimised for inference, on one core of a CPU."""

    batch_windows = MAX_WINDOWS_PER_BATCH

    def __init__(self, fast: FastNetwork) -> None:
        self._fast = fast
        # True if a batch has the same bits as each row alone, by number of rows and positions.
        self._exact: dict[tuple[int, int, int], bool] = {}
        # True if the front-end computes the same bits for windows together as for each alone, by
        # number of windows and the hops between them.
        self._exact_windows: dict[tuple[int, int], bool] = {}

    def open_stream(self, positions: slice) -> FeatureStream:
        return self._fast.open_stream(positions)

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        """Compute windows together only if each has the same bits as alone."""
        rows: list[Tensor] = []
        for shift, group in groupby(due.iter_windows(), key=itemgetter(1)):
            windows = [torch.from_numpy(view) for view, _ in group]
            rows += self._rows(stream, windows, due, shift)
        return rows

    def _rows(
        self, stream: FeatureStream, rest: list[Tensor], due: PendingWindows, shift: int
    ) -> list[Tensor]:
        rows: list[Tensor] = []
        while len(rest) > 1 and isinstance(stream, NetworkStream):
            if stream.can_batch(due.new_hops) and self._is_exact(len(rest), due.new_hops):
                return rows + stream.advance_batch(rest, due.new_hops, shift)
            rows.append(stream.advance(rest.pop(0), due.new_hops, shift))
        return rows + [stream.advance(window, due.new_hops, shift) for window in rest]

    def _is_exact(self, windows: int, new_hops: int) -> bool:
        """True if this number of windows has the same bits together as alone (tested on noise)."""
        key = (windows, new_hops)
        if key not in self._exact_windows:
            generator = torch.Generator().manual_seed(0)
            noise = 0.1 * torch.randn(WINDOW + windows * new_hops * HOP, generator=generator)
            first, *others = noise.unfold(0, WINDOW, new_hops * HOP)
            alone = self._fast.open_stream(_TYPICAL_POSITIONS)
            together = self._fast.open_stream(_TYPICAL_POSITIONS)
            assert isinstance(together, NetworkStream)
            for stream in (alone, together):
                stream.advance(first, new_hops)
            expected = [alone.advance(window, new_hops) for window in others]
            rows = together.advance_batch(others, new_hops)
            self._exact_windows[key] = all(map(torch.equal, rows, expected))
        return self._exact_windows[key]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Batch rows only if the CPU's kernels compute the same bits as for each row alone. This
        depends on the shapes, so it is tested on the first rows of each shape."""
        shape = (len(rows), positions.start, positions.stop)
        exact = self._exact.get(shape)
        if len(rows) == 1 or exact is False:
            return self._alone(rows, positions).numpy()
        together = self._fast.predict_rows(rows, positions)
        if exact is None:
            alone = self._alone(rows, positions)
            self._exact[shape] = torch.equal(together, alone)
            return alone.numpy()
        return together.numpy()

    def _alone(self, rows: Sequence[Tensor], positions: slice) -> Tensor:
        return torch.cat([self._fast.predict_rows([row], positions) for row in rows])


def device_of(transcriber: EngineModel) -> torch.device:
    """Return the device of a transcriber's weights."""
    if isinstance(transcriber, torch.nn.Module):
        return next(transcriber.parameters(), torch.empty(0)).device
    return torch.device("cpu")


def make_runner(transcriber: EngineModel) -> Runner:
    """Return the fastest runner for a transcriber on the device of its weights."""
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


def window_ms(
    runner: Runner, clock: Callable[[], float], positions: slice = _TYPICAL_POSITIONS
) -> float:
    """Return the computing time of a window in ms, by ``clock`` (s). This is the minimum of several
    runs, because other programs may be running."""
    stream, hops = runner.open_stream(positions), positions.stop - positions.start
    due = PendingWindows(np.zeros(WINDOW, np.float32), 1, hops, positions)
    runs = timeit.repeat(
        lambda: compute(runner, stream, due), timer=clock, repeat=_TIMED_RUNS, number=1
    )
    return 1000 * max(min(runs), 1e-6)


def configure_torch_thread() -> None:
    """Configure torch in the calling thread: one core, and denormal numbers rounded to zero. Audio
    that fades out below 1e-38 would make the front-end 50 times slower, because x86 handles
    denormal numbers in microcode."""
    torch.set_flush_denormal(True)  # affects this thread only
    torch.get_num_threads()  # initialises the default, which would later replace the count
    with _thread_setting_lock, ThreadPoolExecutor(1) as other_thread:
        # torch also changes the default of threads that start later. The other thread restores it,
        # because it is the caller's setting.
        default = other_thread.submit(torch.get_num_threads).result()
        torch.set_num_threads(1)
        other_thread.submit(torch.set_num_threads, default).result()
