"""Filterbank and convolutions of a stream, computed only for new and changed columns.

A column is the same in every window that contains it, except for the newest columns, which lack
right neighbours. When the window moves by k hops, the filterbank computes k new columns. The first
convolution also changes two columns before them, and each later convolution changes one more.
Example for k = 2 and three later convolutions (``.`` cached, ``#`` computed, ``-`` silent, because
the kernel ends after the window)::

    filterbank     . . . . . . . . . . . # # - -
    convolution 1  . . . . . . . . . # # # # # #
    convolution 2  . . . . . . . . # # # # # # #
    convolution 3  . . . . . . . # # # # # # # #
    convolution 4  . . . . . . # # # # # # # # #

In memory the axes are time, pitch, channel, so columns are contiguous.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import STEM_REACH
from model.fast.filters import NewestFrames
from model.front_end.filterbank import SpectralPeaks, feature_indexes
from model.transcriber import FilterbankNetwork


class ColumnNetwork:
    """Filterbank, harmonic stack and convolutions. Copies the weights. Thread-safe."""

    def __init__(
        self, network: FilterbankNetwork, convolutions: list[nn.Conv2d], dtype: torch.dtype
    ) -> None:
        """Args:
        convolutions: the network's convolutions, with folded batch norms.
        dtype: type in which the convolutions are computed.
        """
        bank, stack = network.filterbank, network.stack
        self.dtype = dtype
        self.edge = bank.config.edge
        self.first = bank.columns - self.edge  # number of new columns in the first call
        self.longest_slide = bank.longest_slide
        self._bank = bank
        self._layers: list[tuple[Tensor, Tensor, int]] = []  # kernel, bias, padding over pitches
        for layer in convolutions:
            assert layer.bias is not None
            padding = layer.kernel_size[0] // 2
            self._layers.append((_time_first(layer), layer.bias.detach(), padding))
        self._strides = [layer.stride[0] for layer in convolutions]  # over pitches
        self._harmonics = len(stack.shifts)
        self._frames = NewestFrames(bank)
        self._stack = stack
        self._rows: dict[int, Tensor] = {}  # feature index of each row and harmonic, by shift
        self._peaks = SpectralPeaks(bank.config, bank.order)
        with torch.inference_mode():
            self._silence = float(bank.compress(torch.zeros(())))
            silent = self._silent_columns()
        # Number of columns on either side that each convolution uses.
        reaches = [weight.shape[2] // 2 for weight, _, _ in self._layers]
        # Input columns of each convolution before the stream (its input for silence) and after the
        # window (zeros). The first convolution also has silent columns before these zeros.
        self._silent = [_repeat(x, 2 * reach) for x, reach in zip(silent, reaches, strict=True)]
        self._after = [_repeat(0 * x, reach) for x, reach in zip(silent, reaches, strict=True)]
        self._after[0] = torch.cat([_repeat(silent[0], self.edge), self._after[0]], dim=1)

    def open(self) -> list[Tensor]:
        """Return the state of a new stream after silence: for each convolution, the input columns
        to the left of the columns that change next, (1, columns, pitches, channels)."""
        return list(self._silent)

    def advance(
        self,
        state: list[Tensor],
        audio: Tensor,
        new_hops: int,
        windows: int = 1,
        shift: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Return the new and changed columns of each window, (windows, columns, pitches, channels),
        oldest first, and the peaks of its new frames, (windows, new_hops, PITCHES).

        The number of these columns is ``new_hops`` + :attr:`reach`. Updates ``state`` in place.

        Args:
            audio: samples from the start of the first window to the end of the last.
            new_hops: ``first`` for the first window of a stream. Otherwise the number of hops
                between windows: at most ``longest_slide``, and for several windows at least
                2 * STEM_REACH, the number of columns in the state of the first convolution.
            windows: number of windows.
            shift: number of bins by which the filters of the new frames are shifted upwards.
        """
        x, peaks = self._stacked(audio, new_hops, windows, shift)
        # If a convolution uses r columns on either side, the first changed output is r columns
        # before the first changed input, and depends on r more columns to its left: the state has
        # 2 * r columns.
        for number, (weight, bias, padding) in enumerate(self._layers):
            before, after = state[number], self._after[number]
            if windows > 1:
                before = torch.cat([before, x[:-1, new_hops - before.shape[1] : new_hops]])
                after = after.expand(windows, -1, -1, -1)
            rows = torch.cat([before, x, after], dim=1)
            state[number] = rows[-1:, new_hops : new_hops + before.shape[1]]
            x = F.relu_(_convolve(rows, weight, bias, self._strides[number], padding))
            if number:  # later convolutions are residual, and their reach is 1
                x.add_(rows[:, 1:-1])
        return x, peaks

    @property
    def reach(self) -> int:
        """Number of older columns that change when new columns arrive."""
        return self.edge + STEM_REACH + len(self._layers) - 1

    def _stacked(
        self, audio: Tensor, frames: int, windows: int, shift: int
    ) -> tuple[Tensor, Tensor]:
        """Return each window's new frames as input of the first convolution, (windows, frames,
        rows, harmonics), and the peaks of these frames, (windows, frames, PITCHES)."""
        features = self._bank.compress(self._frames.power(audio, windows * frames))
        rows = self._rows.get(shift)
        if rows is None:
            bins = torch.arange(self._stack.rows)[:, None] + torch.tensor(self._stack.shifts)
            rows = self._rows[shift] = feature_indexes(bins, shift, self._bank.order).flatten()
        stacked = features.to(self.dtype).index_select(1, rows)
        peaks = self._peaks(features, shift).view(windows, frames, -1)
        return stacked.view(windows, frames, -1, self._harmonics), peaks

    def _silent_columns(self) -> list[Tensor]:
        """Return one column of each convolution's input in silence, (1, 1, pitches, channels)."""
        silent = []
        x = torch.full((1, 1, self._stack.rows, self._harmonics), self._silence)
        x = x.to(self.dtype)
        for number, (weight, bias, padding) in enumerate(self._layers):
            silent.append(x)
            rows = x.repeat(1, weight.shape[2], 1, 1)
            out = F.relu_(_convolve(rows, weight, bias, self._strides[number], padding))
            x = out.add_(x) if number else out
        return silent


def _repeat(column: Tensor, count: int) -> Tensor:
    return column.repeat(1, count, 1, 1)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """Map (windows, columns, pitches, channels) to the output of a convolution. Only the pitch axis
    has stride and padding."""
    x = x.permute(0, 3, 1, 2)  # channels last in memory
    if x.dtype is torch.float32 and torch.backends.mkldnn.is_available():
        # `conv2d` would use a slower method for small inputs.
        x = torch.mkldnn_convolution(x, weight, bias, (0, padding), (1, stride), (1, 1), 1)
    else:
        x = F.conv2d(x, weight, bias, (1, stride), (0, padding))
    return x.permute(0, 2, 3, 1)


def _time_first(layer: nn.Conv2d) -> Tensor:
    """Return the kernel with the axes of pitch and time swapped."""
    weight = layer.weight.detach().transpose(2, 3)
    return weight.contiguous(memory_format=torch.channels_last)
