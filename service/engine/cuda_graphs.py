"""Runs batches on a GPU, with the complete network recorded as a CUDA graph.

The network consists of hundreds of small kernels. The GPU runs them faster than the CPU can launch
them, so a CUDA graph launches all of them together. The shapes in a graph are fixed. There is
therefore one graph, called a bucket, for each range of positions and each batch size that is a
power of two. Unused rows of a bucket keep windows of earlier batches, and their results are
ignored.

Each window is copied in full, and all its filterbank frames are computed again. On a GPU, this is
cheaper than storing the state of every stream. A runner is not thread-safe.
"""

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

MAX_BATCH_WINDOWS = 128
MAX_STEP_MS = 25.0  # maximum duration of a worker's step; new windows wait until it ends
_MAX_GRAPHS = 64
_MIN_WINDOWS = 1 << 3  # batch size of the smallest bucket; smaller buckets are not faster

Repeat = Callable[[], None]
# Records the work of a function on the device, and returns a function that repeats it.
Capture = Callable[[Callable[[], None]], Repeat]


def capture_cuda_graph(work: Callable[[], None]) -> Repeat:
    """Record ``work`` as a CUDA graph. The tensors that ``work`` uses must keep their addresses."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # compile kernels and allocate workspaces before recording
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use CUDA
        work()
    return graph.replay


class _Bucket:
    """Buffers and graph for one batch size and one range of positions."""

    def __init__(
        self,
        fast: FastNetwork,
        windows: int,
        positions: slice,
        device: torch.device,
        capture: Capture,
    ) -> None:
        pinned = device.type == "cuda"
        row_length = fast.context + WINDOW + 1  # the last number is the shift
        self.inputs = torch.zeros(windows, row_length, pin_memory=pinned)
        on_device = torch.zeros(windows, row_length, device=device)
        with torch.inference_mode():
            shape = fast.predict(on_device[:1], positions).shape[1:]
        self.outputs = torch.zeros(windows, *shape, pin_memory=pinned)

        def work() -> None:
            with torch.inference_mode():
                on_device.copy_(self.inputs, non_blocking=True)
                self.outputs.copy_(fast.predict(on_device, positions), non_blocking=True)

        self.work = work  # keeps the tensors alive, which the graph does not
        self.replay = capture(work)


class GraphRunner:
    """A ``service.engine.runners.Runner`` of a network on a GPU."""

    def __init__(
        self,
        fast: FastNetwork,
        device: torch.device,
        common: Sequence[slice],
        capture: Capture = capture_cuda_graph,
    ) -> None:
        """common: ranges of positions whose graphs ``warm_up`` records."""
        self._fast = fast
        self._device = device
        self._common = common
        self._capture = capture
        self._buckets: OrderedDict[tuple[int, int, int], _Bucket] = OrderedDict()
        self.batch_windows = _MIN_WINDOWS

    def open_stream(self) -> FeatureStream:
        return WindowStream(self._fast.context)

    def rows(self, stream: FeatureStream, due: PendingWindows) -> list[Tensor]:
        return [
            stream.advance(torch.from_numpy(view), due.new_hops, shift)
            for view, shift in due.iter_windows()
        ]

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        bucket = self._bucket(len(rows), positions)
        torch.stack(list(rows), out=bucket.inputs[: len(rows)])
        bucket.replay()
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()  # until the outputs are copied
        return bucket.outputs[: len(rows)].numpy().copy()

    def warm_up(self) -> None:
        """Record the graphs of the common positions. Set ``batch_windows`` to the largest batch
        size that takes at most MAX_STEP_MS, or to the smallest bucket's size."""
        size = _MIN_WINDOWS
        while size <= MAX_BATCH_WINDOWS:
            rows = [torch.zeros(self._fast.context + WINDOW + 1)] * size
            took_s = max(
                min(timeit.repeat(partial(self.predict, rows, positions), repeat=3, number=1))
                for positions in self._common
            )
            if 1000 * took_s > MAX_STEP_MS and size > _MIN_WINDOWS:
                break
            self.batch_windows = size
            size *= 2

    def _bucket(self, windows: int, positions: slice) -> _Bucket:
        """Return the smallest bucket with at least this number of windows. If there would be more
        than _MAX_GRAPHS buckets, drop the least recently used one."""
        size = max(_MIN_WINDOWS, 1 << (windows - 1).bit_length())
        key = (size, positions.start, positions.stop)
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = _Bucket(self._fast, size, positions, self._device, self._capture)
            if len(self._buckets) >= _MAX_GRAPHS:
                self._buckets.popitem(last=False)
        self._buckets[key] = bucket
        return bucket
