"""Batches on a GPU: windows in, probabilities out, the whole network recorded as one CUDA graph.

A network of this kind is hundreds of small kernels, which a processor launches more slowly than
the GPU runs them; a graph launches them as one. A graph has fixed shapes, so there is one for each
bucket (a power of two of windows) and each set of positions that is read; batches are filled up
with what the bucket held before. Windows cross whole, in pinned memory; the filterbank's frames
are recomputed for each, which costs a GPU less than keeping the state of every stream.

Thread-safety: one worker thread predicts; nothing else touches the graphs.
"""

from __future__ import annotations

import timeit
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from model.config import WINDOW
from model.fast.network import FastNetwork
from model.transcriber import FeatureStream, WindowStream
from service.stream.windows import PendingWindows, Probabilities

MAX_BATCH_WINDOWS = 128  # windows
MAX_STEP_MS = 25.0  # of a worker: a live window waits for one step at most
_MAX_GRAPHS = 64
_MIN_WINDOWS = 1 << 3  # a smaller bucket saves nothing

Repeat = Callable[[], None]
Capture = Callable[[Callable[[], None]], Repeat]
"""Records what a function does on the device; what it returns does it again."""


def capture_cuda_graph(work: Callable[[], None]) -> Repeat:
    """Record ``work`` as a CUDA graph. Its tensors must stay at their addresses."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # kernels are compiled and workspaces allocated outside of the graph
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may use the device
        work()
    return graph.replay


class _Bucket:
    """Buffers and graph of one number of windows, read at one set of positions."""

    def __init__(
        self,
        fast: FastNetwork,
        windows: int,
        positions: slice,
        device: torch.device,
        capture: Capture,
    ) -> None:
        pinned = device.type == "cuda"
        samples = fast.context + WINDOW + 1  # and the shift
        self.inputs = torch.zeros(windows, samples, pin_memory=pinned)
        on_device = torch.zeros(windows, samples, device=device)
        with torch.inference_mode():
            shape = fast.predict(on_device[:1], positions).shape[1:]
        self.outputs = torch.zeros(windows, *shape, pin_memory=pinned)

        def work() -> None:
            with torch.inference_mode():
                on_device.copy_(self.inputs, non_blocking=True)
                self.outputs.copy_(fast.predict(on_device, positions), non_blocking=True)

        self.work = work  # a graph keeps nothing of what it reads and writes
        self.replay = capture(work)


class GraphRunner:
    """A network on a GPU (see ``service.engine.runners.Runner``)."""

    def __init__(
        self,
        fast: FastNetwork,
        device: torch.device,
        common: Sequence[slice],
        capture: Capture = capture_cuda_graph,
    ) -> None:
        """common: the positions that most streams are read at, recorded before there are any."""
        self._fast = fast
        self._device = device
        self._common = common
        self._capture = capture
        self._buckets: OrderedDict[tuple[int, int, int], _Bucket] = OrderedDict()
        self.batch_windows = _MIN_WINDOWS

    def open_stream(self, positions: slice) -> FeatureStream:
        """Return the state of a stream, which is the audio before its window."""
        return WindowStream(self._fast.context)

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        """Return the windows and the audio before them, in the memory of the CPU."""
        return [
            stream.advance(torch.from_numpy(view), due.new_hops, shift)
            for view, shift in due.iter_windows()
        ]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        bucket = self._bucket(len(rows), positions)
        torch.stack(list(rows), out=bucket.inputs[: len(rows)])
        bucket.replay()
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # each worker thread has its own stream
        return bucket.outputs[: len(rows)].numpy().copy()

    def warm_up(self) -> None:
        """Record the common graphs, and see which batch is still quick enough."""
        size = _MIN_WINDOWS
        while size <= MAX_BATCH_WINDOWS:
            rows = [torch.zeros(self._fast.context + WINDOW + 1)] * size
            took_s = max(
                min(timeit.repeat(partial(self.predict, rows, positions), repeat=3, number=1))
                for positions in self._common
            )
            if 1000 * took_s > MAX_STEP_MS and size > _MIN_WINDOWS:
                break
            self.batch_windows, size = size, 2 * size

    def _bucket(self, windows: int, positions: slice) -> _Bucket:
        """Return the smallest bucket with enough windows. The least recently used buckets are
        dropped."""
        size = max(_MIN_WINDOWS, 1 << (windows - 1).bit_length())
        key = (size, positions.start, positions.stop)
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = _Bucket(self._fast, size, positions, self._device, self._capture)
            if len(self._buckets) >= _MAX_GRAPHS:
                self._buckets.popitem(last=False)
        self._buckets[key] = bucket
        return bucket
