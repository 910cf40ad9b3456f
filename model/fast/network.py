"""Fast inference for filterbank networks, with nearly the same results as ``TranscriptionModel``.

The results are equal up to rounding, except that streams on a CPU use decimated filters
(``model.fast.filters``).

Batch norms are folded into the preceding convolutions, which use the memory format "channels last".
The shuffle-exchange network is computed only for the frames that are used
(``model.fast.shuffle_exchange``).
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import FRAMES, HOP, LIVE, LOGIT_OFFSET, PITCHES
from model.fast.columns import ColumnNetwork
from model.fast.exchange import FirstHalf, LayerCache, merge_windows
from model.fast.shuffle_exchange import FastShuffleExchange
from model.front_end.filterbank import GRID, SpectralPeaks
from model.front_end.patches import SEMITONES
from model.transcriber import (
    MASKED_LOGIT,
    FilterbankNetwork,
    TranscriptionModel,
    pool_pedal,
    split_rows,
)

LayerT = TypeVar("LayerT", bound=nn.Module)


def fast_network(transcriber: TranscriptionModel) -> "FastNetwork | None":
    """Return a fast version of a model. Return None if the network has no filterbank, or if its
    switch units or shuffles differ from those of the shipped weights."""
    network, rse = transcriber.network, transcriber.config.rse
    if not isinstance(network, FilterbankNetwork):
        return None
    fields = ("unit", "shuffle", "norm", "activation", "residual_scale")
    is_supported = all(getattr(rse, name) == getattr(LIVE.rse, name) for name in fields)
    return FastNetwork(transcriber, network) if is_supported else None


class FastNetwork:
    """Fast replacement for ``TranscriptionModel.predict``. Copies most weights, so do not change
    the weights or ``compute_dtype`` of the model afterwards. Thread-safe."""

    def __init__(self, transcriber: TranscriptionModel, network: FilterbankNetwork) -> None:
        dtype = transcriber.compute_dtype
        bank, convolutions = network.filterbank, network.convolutions
        self._transcriber = transcriber
        self._dtype = dtype
        self._heads = network.heads
        self._filterbank = bank
        self._halo = convolutions.halo
        self._stack = network.stack
        self._peaks = SpectralPeaks(bank.config, torch.arange(bank.bins, device=bank.order.device))
        self._patches = network.patches
        self._lowest_pitch = network.lowest_pitch
        octave = network.octave.detach()
        with torch.inference_mode():
            self._silence = bank.compress(octave.new_zeros(())).to(dtype)
        self._layers = [
            _fold_norm(layer, norm, dtype)
            for layer, norm in zip(
                (convolutions.stem, *convolutions.layers),
                (convolutions.stem_norm, *convolutions.norms),
                strict=True,
            )
        ]
        self._embed = _copy(network.embed, dtype)
        self._octave = octave.float().repeat(self._patches.patches, 1)  # (positions, m)
        self._rse = FastShuffleExchange(network.rse, dtype)
        self._unembed = _head_first(_copy(network.unembed, dtype), len(self._heads))
        skip = _copy(network.skip, dtype)
        self._skip = skip.weight.flatten(1)  # (heads, channels)
        bias = network.pitch_bias.detach().float() + LOGIT_OFFSET
        if skip.bias is not None:
            bias = bias + skip.bias.float()[:, None, None]
        # (heads, 1, 1, octaves, semitones)
        self._bias = bias.view(len(self._heads), 1, 1, self._patches.octaves, SEMITONES)
        if octave.device.type == "cpu":  # a GPU computes windows in full
            self._columns = ColumnNetwork(network, self._layers, dtype)
            reach = self._columns.reach
            self._first_half = FirstHalf(self._rse, self._patches, reach, self._embed_columns)

    @property
    def context(self) -> int:
        """Number of samples before a window on which its frames depend."""
        return self._transcriber.config.context

    @torch.inference_mode()
    def predict(self, windows: Tensor, positions: slice) -> Tensor:
        """Map windows, (batch, context + WINDOW) samples, or rows of a ``WindowStream``, to the
        probabilities of the frames at ``positions``, (batch, outputs, frames, PITCHES) float32."""
        frames = range(FRAMES)[positions]
        windows, shift = split_rows(windows, self.context)
        features = self._filterbank.retuned(self._filterbank(windows), shift)
        x = self._convolve(features)  # (batch, channels, pitches, GRID)
        sequence = self._embed(self._patches.cut(x)) + self._octave
        out = self._rse(sequence, self._positions_of(frames))
        selected = x[..., frames.start : frames.stop].permute(0, 3, 2, 1)
        peaks = self._peaks.of_windows(features[..., self._halo :], frames)
        return self._with_peaks(out, selected, frames, peaks)

    def open_stream(self, positions: slice) -> "NetworkStream":
        """Return the state of a new stream on a CPU. Pass its rows to :meth:`predict_rows`."""
        return NetworkStream(self._columns, self._first_half, range(FRAMES)[positions])

    @torch.inference_mode()
    def predict_rows(self, rows: Sequence[Tensor], positions: slice) -> Tensor:
        """Map rows of this network's streams to probabilities, (rows, outputs, frames, PITCHES).
        The streams must have computed the rows for these positions (``NetworkStream.frames``)."""
        frames = range(FRAMES)[positions]
        stacked = torch.stack(list(rows)) if len(rows) > 1 else rows[0][None]
        borders = [self._octave.numel(), -len(frames) * PITCHES]
        middle, columns, peaks = stacked.tensor_split(borders, dim=1)
        middle = middle.view(-1, *self._octave.shape).contiguous()
        out = self._rse.finish(middle, self._positions_of(frames))
        pitches = self._patches.octaves * SEMITONES
        x = columns.view(len(rows), len(frames), pitches, -1).to(self._dtype)
        return self._with_peaks(out, x, frames, peaks.view(len(rows), -1, PITCHES))

    def _embed_columns(self, columns: Tensor) -> Tensor:
        """Map the columns of the newest patches, (windows, columns, pitches, channels), to
        positions, (windows, positions, m) float32."""
        octaves = self._patches.octaves
        cells = columns.unflatten(2, (octaves, -1)).unflatten(1, (-1, self._patches.frames))
        cells = cells.movedim(2, 4).reshape(len(columns), -1, self._embed.in_features)
        return self._embed(cells) + self._octave[-cells.shape[1] :]

    def _with_peaks(self, out: Tensor, x: Tensor, frames: range, peaks: Tensor) -> Tensor:
        """Return the probabilities of the heads and, as the last output, the peaks."""
        logits = self._read_out(out, x, frames).float()
        outputs = torch.sigmoid(self._transcriber.calibrate(logits))
        outputs[:, -1] = peaks
        return outputs

    def _read_out(self, out: Tensor, x: Tensor, frames: range) -> Tensor:
        """Return the heads' logits and a row for the peaks, (batch, heads + 1, frames, PITCHES),
        from out, (batch, positions, m), and x, (batch, frames, pitches, channels)."""
        patches, heads, lowest = self._patches, len(self._heads), self._lowest_pitch
        cells = self._unembed(out.to(self._dtype))
        cells = cells.view(len(out), -1, patches.octaves, patches.frames, heads, SEMITONES)
        # (batch, heads, patches, frames of a patch, octaves, semitones)
        cells = cells.permute(0, 4, 1, 3, 2, 5)
        columns, pitches = cells.shape[2] * patches.frames, patches.octaves * SEMITONES
        placed = out.new_full((len(out), heads + 1, columns, PITCHES), MASKED_LOGIT)
        logits = placed[:, :-1, :, lowest : lowest + pitches]
        torch.add(cells, self._bias, out=logits.view(cells.shape))
        first = frames[0] % patches.frames  # number of frames to skip in the first patch
        logits = logits[:, :, first : first + len(frames)]
        skip = torch.mm(self._skip, x.reshape(-1, x.shape[-1]).t())
        logits += skip.view(heads, *x.shape[:3]).transpose(0, 1)  # (batch, heads, frames, pitches)
        pool_pedal(logits, self._heads)
        return placed[:, :, first : first + len(frames)]

    def _positions_of(self, frames: range) -> range:
        """Return the positions of the sequence that predict these frames."""
        per, octaves = self._patches.frames, self._patches.octaves
        return range(frames[0] // per * octaves, (frames[-1] // per + 1) * octaves)

    def _convolve(self, features: Tensor) -> Tensor:
        """Apply the harmonic stack and the convolutions, as in ``PitchConvolutions``."""
        x = self._stack(features.to(self._dtype), self._silence)
        x = x.contiguous(memory_format=torch.channels_last)
        stem, *layers = self._layers
        x = F.relu_(stem(x))
        for layer in layers:
            x = F.relu_(layer(x)).add_(x)
        return x[..., self._halo :]


class NetworkStream:
    """State of a stream on a CPU (a ``model.transcriber.FeatureStream``), 1 to 4 MB. It contains
    the columns of the latest window, and outputs of the first half of the first Beneš block for a
    few windows. Only one thread may use it.

    Silence precedes the first window. After a move by more than ``longest_slide`` hops, the
    stream restarts from silence.

    Attributes:
        frames: frames of a window for which its row contains columns and peaks. It may be changed
            between two windows.
    """

    def __init__(self, columns: ColumnNetwork, first_half: FirstHalf, frames: range) -> None:
        self._network = columns
        self._first_half = first_half
        self.frames = frames
        self._state: list[Tensor] | None = None
        self._columns: Tensor | None = None  # (GRID, pitches, channels)
        self._peaks: Tensor | None = None  # (complete columns, PITCHES)
        self._caches: list[LayerCache] = []
        self._hop = 0  # end of the latest window, in hops from the start of the stream

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        """Map a window, (WINDOW,), to a flat float32 row: the input of
        ``FastShuffleExchange.finish``, (positions, m), then the columns, (frames, pitches,
        channels), and the peaks, (frames, PITCHES), of the stream's frames."""
        return self.advance_batch([window], new_hops, shift)[0]

    def can_batch(self, new_hops: int) -> bool:
        """True if :meth:`advance_batch` accepts several windows ``new_hops`` hops apart."""
        if self._state is None or new_hops > self._network.longest_slide:
            return False
        reused = GRID - (new_hops + self._network.reach)  # columns that a window does not change
        # ``merge_windows`` copies these columns from the changed columns of the previous window.
        return 0 <= reused <= new_hops and self._first_half.can_batch(new_hops)

    @torch.inference_mode()
    def advance_batch(
        self, windows: Sequence[Tensor], new_hops: int, shift: int = 0
    ) -> list[Tensor]:
        """Return a row, as :meth:`advance` does, for each of the stream's next windows."""
        audio, new, count = windows[0], new_hops, len(windows)
        if self._state is None or not 0 < new_hops <= self._network.longest_slide:
            self._state, self._caches = self._network.open(), self._first_half.open()
            new = self._network.first
        elif count > 1:
            audio = torch.cat([audio, *(window[-new_hops * HOP :] for window in windows[1:])])
        columns, peaks = self._network.advance(self._state, audio, new, count, shift)
        grid = merge_windows(self._columns, columns[:, -GRID:], GRID, new_hops)
        complete = GRID - self._network.edge  # number of columns whose kernels end in the window
        peaks = merge_windows(self._peaks, peaks[:, -complete:], complete, new_hops)
        self._columns, self._peaks = grid[-1], peaks[-1]
        hops = [self._hop + number * new_hops for number in range(1, count + 1)]
        self._hop = hops[-1]
        middle = self._first_half.advance(self._caches, hops, grid)
        start, stop = self.frames.start, self.frames.stop
        selected = grid[:, start:stop].flatten(1).float()
        incomplete = max(0, stop - max(start, complete))  # number of frames without peaks
        peaks = F.pad(peaks[:, start:stop], (0, 0, 0, incomplete))
        return list(torch.cat([middle.flatten(1), selected, peaks.flatten(1)], dim=1))


def _copy(layer: LayerT, dtype: torch.dtype) -> LayerT:
    """Return a copy of a layer, converted to this type, without gradients."""
    return deepcopy(layer).to(dtype).requires_grad_(False)


def _head_first(unembed: nn.Linear, heads: int) -> nn.Linear:
    """Reorder the layer's outputs from (semitones, frames, heads) to (frames, heads, semitones), in
    place, so that the pitches of a head are adjacent."""
    for values in (unembed.weight, unembed.bias):
        by_cell = values.data.unflatten(0, (SEMITONES, -1, heads)).movedim(0, 2)
        values.data = by_cell.flatten(0, 2).contiguous()
    return unembed


def _fold_norm(convolution: nn.Conv2d, norm: nn.BatchNorm2d, dtype: torch.dtype) -> nn.Conv2d:
    """Return a copy of a bias-free convolution into which the batch norm after it is folded. The
    copy has a bias."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    folded = deepcopy(convolution)  # a new layer would draw random weights
    with torch.no_grad():
        weight = convolution.weight.float() * scale[:, None, None, None]
        folded.weight = nn.Parameter(weight, requires_grad=False)
        folded.bias = nn.Parameter(norm.bias - norm.running_mean * scale, requires_grad=False)
    folded = folded.to(dtype)
    folded.weight.data = folded.weight.contiguous(memory_format=torch.channels_last)
    return folded
