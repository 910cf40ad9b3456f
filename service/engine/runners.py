"""Runners of the model's batches: plain, on the cores of a CPU, on a GPU.

Workers that each compute alone on one core beat all cores sharing each small product, so a CPU gets
one worker per core, unless a window takes one core so long that a single stream would be late: then
one worker uses all cores. Either way a window's result does not depend on the rest of its batch,
bit for bit.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from model.config import HOP, WINDOW
from model.fast.network import FastNetwork, fast_network
from model.fast.stream import NetworkStream
from model.transcriber import FeatureStream
from model.transcriber import TranscriptionModel as Network
from service.engine.batching import EngineSettings, Probabilities, Window
from service.engine.cuda_graphs import GraphRunner
from service.engine.interface import EngineModel, Plan, Runner, least_ms
from service.engine.windows import common_positions

# A window that takes one core longer than this is split across all cores.
_ALONE_MS = 40.0
# Windows that a core computes in one go: more gain little and delay others.
_CHUNK = 4
_TRIED = slice(48, 56)  # a usual block's positions
_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_setting_threads = threading.Lock()


class PlainRunner:
    """Any transcriber: whole batches, all positions."""

    batches_pay = True
    threads = None

    def __init__(self, transcriber: EngineModel) -> None:
        self._transcriber = transcriber
        self._device = torch.device("cpu")
        if isinstance(transcriber, torch.nn.Module):
            self._device = next(transcriber.parameters(), torch.empty(0)).device

    def open_stream(self, positions: slice) -> FeatureStream:
        return self._transcriber.open_stream()

    def rows(
        self, stream: FeatureStream, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> list[Tensor]:
        given = [torch.from_numpy(window).to(self._device) for window in windows]
        return [stream.advance(window, new_hops, shift) for window in given]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        probabilities = self._transcriber.predict_features(torch.stack(list(rows)))
        return probabilities[:, :, positions].cpu().numpy()

    def plan(self, settings: EngineSettings) -> Plan:
        """One worker, default threads, batches within ``max_step_ms``."""
        windows = settings.max_file_batch_windows
        (row,) = self.rows(self.open_stream(_TRIED), [np.zeros(WINDOW, np.float32)], 1)
        batch_ms = least_ms(lambda: self.predict([row] * windows, _TRIED), time.perf_counter)
        fitting = max(1, int(settings.max_step_ms * windows / batch_ms))
        return Plan(workers=1, threads=None, batch_windows=fitting)


class CpuRunner:
    """A network on the cores of a CPU, arranged for inference."""

    batches_pay = False  # batches hold whatever is waiting
    threads = 1

    def __init__(self, fast: FastNetwork) -> None:
        self._fast = fast
        # By rows and positions: whether a batch gives the same bits as each row alone.
        self._exact: dict[tuple[int, int, int], bool] = {}
        self._agreeing: dict[tuple[int, int], bool] = {}  # by windows and the hops between them

    def open_stream(self, positions: slice) -> FeatureStream:
        return self._fast.open_stream(positions)

    def rows(
        self, stream: FeatureStream, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> list[Tensor]:
        """Computes windows together only if each then has the same bits as alone."""
        rest = [torch.from_numpy(window) for window in windows]
        rows: list[Tensor] = []
        while len(rest) > 1 and isinstance(stream, NetworkStream):
            if stream.together(new_hops) and self._agree(len(rest), new_hops):
                return rows + stream.advance_together(rest, new_hops, shift)
            rows.append(stream.advance(rest.pop(0), new_hops, shift))
        return rows + [stream.advance(window, new_hops, shift) for window in rest]

    def _agree(self, windows: int, new_hops: int) -> bool:
        """Whether so many windows give the same bits together as alone; tried once, on noise."""
        key = (windows, new_hops)
        if key not in self._agreeing:
            own = torch.Generator().manual_seed(0)
            noise = 0.1 * torch.randn(WINDOW + windows * new_hops * HOP, generator=own)
            first, *others = noise.unfold(0, WINDOW, new_hops * HOP)
            alone, together = self._fast.open_stream(_TRIED), self._fast.open_stream(_TRIED)
            assert isinstance(together, NetworkStream)
            for stream in (alone, together):
                stream.advance(first, new_hops)
            expected = [alone.advance(window, new_hops) for window in others]
            rows = together.advance_together(others, new_hops)
            self._agreeing[key] = all(map(torch.equal, rows, expected))
        return self._agreeing[key]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Batches rows only if the CPU's kernels give the same bits as each row alone.

        That depends on the shapes, so it is tested on the first rows of each shape.
        """
        shape = (len(rows), positions.start, positions.stop)
        exact = self._exact.get(shape)  # asked once: another worker may try the same meanwhile
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

    def plan(self, settings: EngineSettings) -> Plan:
        """One worker per core, or all cores for one worker.

        Measured in CPU time, since other processes may share the core.
        """
        stream, hops = self.open_stream(_TRIED), _TRIED.stop - _TRIED.start
        silence = [np.zeros(WINDOW, np.float32)]

        def compute() -> Tensor:
            return self._alone(self.rows(stream, silence, hops), _TRIED)

        def window_ms() -> float:
            set_own_threads(1)
            return least_ms(compute, time.thread_time)

        with ThreadPoolExecutor(1) as thread:
            alone_ms = thread.submit(window_ms).result()
        cores = available_cores()
        if alone_ms > _ALONE_MS:
            return Plan(workers=1, threads=cores, batch_windows=1)
        fitting = max(1, int(settings.max_step_ms / alone_ms))
        return Plan(workers=cores, threads=1, batch_windows=min(_CHUNK, fitting))


def runner_of(transcriber: EngineModel) -> Runner:
    """The fastest runner for a transcriber on the device of its weights."""
    if isinstance(transcriber, Network):
        device = next(transcriber.parameters()).device
        fast = fast_network(transcriber)
        if fast is not None and device.type == "cpu":
            return CpuRunner(fast)
        if fast is not None and device.type == "cuda":
            return GraphRunner(fast, device, common_positions(fast.sample_rate))
    return PlainRunner(transcriber)


def set_own_threads(count: int) -> None:
    """``torch.set_num_threads`` for the calling thread alone.

    Torch's own also sets the default of threads to come, which belongs to the caller's program;
    another thread sets that back.
    """
    torch.get_num_threads()  # takes the default now; later it would replace the count
    with _setting_threads, ThreadPoolExecutor(1) as another:
        usual = another.submit(torch.get_num_threads).result()
        torch.set_num_threads(count)
        another.submit(torch.set_num_threads, usual).result()


def available_cores() -> int:
    """Cores that this process may use: ``OMP_NUM_THREADS`` if set, else those of its affinity and,
    rounded down, of its CPU quota."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return max(1, int(min(len(os.sched_getaffinity(0)), _quota())))
    return os.cpu_count() or 1


def _quota() -> float:
    """Cores that the control group allows (version 2), as set for a container."""
    try:
        group = _OWN_GROUP.read_text().rpartition("::")[2].strip()
        limit, period = Path(f"{_GROUPS}{group}", "cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):  # no group, or the limit "max"
        return math.inf
