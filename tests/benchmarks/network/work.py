"""Floating-point operations of a window, and the rate at which a device multiplies matrices."""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from model.config import KEPT_HOPS, WINDOW
from model.fast.network import FastNetwork
from model.transcriber import FilterbankNetwork, TranscriptionModel
from tests.benchmarks.machine import seconds


def window_flops(transcriber: TranscriptionModel, fast: FastNetwork, positions: slice) -> int:
    """Of the products and convolutions behind the filterbank, for a window read at these frames,
    where nothing is kept of the window before.

    Both must be on the processor: a GPU's own kernel is not counted.
    """
    row = transcriber.open_stream().advance(torch.zeros(WINDOW), 1)
    with _counter() as counter:
        fast.predict(row[None], positions)
    with _counter() as filters:
        if isinstance(transcriber.network, FilterbankNetwork):
            transcriber.network.filterbank(row[None])
    return int(counter.get_total_flops() - filters.get_total_flops())


def streamed_flops(fast: FastNetwork, positions: slice, new_hops: int) -> int:
    """Of all products for a stream's next window, filterbank included, on the processor."""
    stream = fast.open_stream(positions)
    for _ in range(2 + KEPT_HOPS // new_hops):  # until there is all that it can keep
        stream.advance(torch.zeros(WINDOW), new_hops)
    with _counter() as counter:
        fast.predict_rows([stream.advance(torch.zeros(WINDOW), new_hops)], positions)
    return int(counter.get_total_flops())


def _counter() -> FlopCounterMode:
    """Counts two operations that torch leaves out: sums in place and a kind of convolution."""

    def product(_: torch.Size, a: torch.Size, b: torch.Size, **__: object) -> int:
        return 2 * a[0] * a[1] * b[1]

    def convolution(
        x: list[int], weight: list[int], *_: object, out_shape: list[int], **__: object
    ) -> int:
        return conv_flop_count(x, weight, out_shape)

    aten = torch.ops.aten
    counts = {aten.addmm_: product, aten.mkldnn_convolution: convolution}
    return FlopCounterMode(display=False, custom_mapping=counts)


def matrix_rate(
    side: int, dtype: torch.dtype, device: torch.device, runs: int, wait: Callable[[], object]
) -> float:
    """FLOP a second of the product of two large square matrices, on all cores; the best run."""
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))

    def multiply() -> None:
        a @ b
        wait()

    return 2 * side**3 / min(seconds(multiply, runs))
