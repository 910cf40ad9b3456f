"""Learnable constant-Q filterbank whose frames stay valid while the window slides.

Frame i of a window describes sample HOP * (i + 1). Each kernel ends `lookahead` samples after this
sample, and starts as early as its pitch requires. Kernels of low filters rise slowly and fall
quickly, so low filters respond only a little later than high filters. Amplitudes from low to high
are ``.``, ``-`` and ``#``::

                               frame time
                                    |
      bass        ...-----##########|#-.    kernel of 4096 samples
      tenor               ..----####|#-.    2048
      treble                     .-#|#-.    1024
                                    |<->| lookahead

If a performance is not tuned to A4 = 440 Hz, the network uses filters that are a few bins higher or
lower (``shift``). Its features are then usually at most half a bin out of tune.

Kernels may start before the window. The convolutions also need `halo` columns before the window.
Columns whose kernels end after the window are silent.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import HOP, PITCHES, RANGE_CENTS, SCALE_CENTS, WINDOW, FilterbankConfig

GRID = WINDOW // HOP  # 64 columns in the feature grid; the last describes the window's end
DB_SCALE = 20.0  # decibels per feature unit
HARMONICS = (1, 2, 3, 4)
_WEAK_DB = 30.0  # maximum distance of a level below the strongest; lower levels are raised
_FLAT = 0.02  # minimum curvature of a peak, in feature units (0.4 dB)
_SILENT_DB = 6.0  # minimum level of a sound, relative to the filterbank's floor
NEAR = 2  # number of filters used on either side of a pitch


class Filterbank(nn.Module):
    """Maps samples to log-magnitude constant-Q frames, (batch, bins, frames)."""

    order: Tensor  # index of each bin among the outputs of all kernels

    def __init__(self, config: FilterbankConfig, sample_rate: int) -> None:
        super().__init__()
        self.config = config
        self.columns = config.halo + GRID
        frequencies = bin_frequencies(config)
        if frequencies[-1] >= sample_rate / 2:
            minimum = f"{2 * frequencies[-1]:.0f} Hz, twice the highest filter's frequency"
            raise ValueError(f"sample_rate must be above {minimum}, not {sample_rate}")
        lengths = [self._window_length(f, sample_rate) for f in frequencies]
        sizes = [min(k for k in config.kernel_lengths if k >= length) for length in lengths]
        self.bins = len(frequencies)
        self.kernels = nn.ParameterDict()
        for size in sorted(set(sizes)):
            waves = [
                constant_q_kernel(frequencies[b], lengths[b], size, config.lookahead, sample_rate)
                for b in range(self.bins)
                if sizes[b] == size
            ]
            # (2 * bins, HOP, size / HOP): a convolution over blocks of HOP samples
            kernel = torch.cat([w.real for w in waves] + [w.imag for w in waves])
            kernel = kernel.view(2 * len(waves), size // HOP, HOP).transpose(1, 2)
            self.kernels[str(size)] = nn.Parameter(kernel.contiguous())
        by_size = sorted(range(self.bins), key=sizes.__getitem__)
        self.register_buffer("order", torch.tensor(by_size).argsort(), persistent=False)

    def _window_length(self, frequency: float, sample_rate: int) -> int:
        shortest, longest = min(self.config.kernel_lengths), max(self.config.kernel_lengths)
        ideal = round(self.config.quality * sample_rate / frequency)
        return min(max(ideal, shortest // 2), longest)

    @property
    def longest(self) -> int:
        """Length of the longest kernel in samples."""
        return max(int(size) for size in self.kernels)

    def power(self, audio: Tensor) -> Tensor:
        """Return the squared magnitudes of all frames whose kernels lie inside the audio.

        Maps (batch, samples) to (batch, bins, frames), where samples is a multiple of HOP, at least
        ``longest``, and frames = (samples - longest) / HOP + 1. The first frame describes sample
        ``longest - lookahead``. In an untrained filterbank, a full-scale sine in
        tune has a squared magnitude of 1.
        """
        blocks = audio.unflatten(1, (-1, HOP)).transpose(1, 2)  # (batch, HOP, blocks)
        frames = audio.shape[1] // HOP - self.longest // HOP + 1
        parts = []
        for size, kernel in self.kernels.items():
            begin = (self.longest - int(size)) // HOP
            # Training would autocast to bfloat16, whose rounding is as loud as soft notes.
            with torch.autocast(audio.device.type, enabled=False):
                wave = F.conv1d(blocks[:, :, begin:], kernel)[:, :, :frames]
            real, imaginary = wave.chunk(2, dim=1)
            parts.append(real.square() + imaginary.square())
        return torch.cat(parts, dim=1)[:, self.order]

    def compress(self, power: Tensor) -> Tensor:
        """Convert power to decibels, shifted and scaled to about -2 ... 2."""
        floor = 10 ** (self.config.floor_db / 10)
        decibels = 10 * torch.log10(power + floor)
        return (decibels - self.config.floor_db / 2) / DB_SCALE

    def forward(self, window: Tensor) -> Tensor:
        """Map windows, (batch, samples), to (batch, bins, columns). Context precedes the last
        WINDOW samples. Zeros replace missing context. The last ``edge`` columns are silent."""
        first = HOP * (1 - self.config.halo)  # the sample that the first column describes
        before = self.longest - self.config.lookahead - first - (window.shape[1] - WINDOW)
        features = self.compress(self.power(F.pad(window, (before, 0))))
        silence = self.compress(features.new_zeros(()))
        return torch.cat([features, silence.expand(*features.shape[:2], self.config.edge)], dim=2)

    def retuned(self, features: Tensor, shift: Tensor) -> Tensor:
        """Return features, (batch, bins, columns), as if all filters were shifted upwards by
        ``shift`` bins, (batch,). Bins above the highest or below the lowest filter are silent."""
        bins = torch.arange(self.bins, device=features.device) + shift.long()[:, None]
        index = bins.clamp(0, self.bins - 1)[..., None].expand_as(features)
        silence = self.compress(features.new_zeros(()))
        return torch.where((index[..., 0] == bins)[..., None], features.gather(1, index), silence)

    @property
    def longest_slide(self) -> int:
        """Maximum number of hops by which a window may move and still contain the kernels of all
        new frames."""
        return (WINDOW - self.longest) // HOP + 1


def bin_frequencies(config: FilterbankConfig) -> list[float]:
    """Return the frequency of each filter in Hz. Each pitch has `bins_per_semitone` filters, of
    which the middle one is in tune."""
    per = config.bins_per_semitone
    return [
        440.0 * 2 ** ((config.lowest_pitch - 69 + (b - per // 2) / per) / 12)
        for b in range(config.semitones * per)
    ]


def feature_indexes(filters: Tensor, shift: int, order: Tensor) -> Tensor:
    """Shift filters upwards by ``shift`` bins, and return their indexes among features that are in
    this order. For a filter that does not exist, before or after the shift, return the index of
    silence, which follows the last bin."""
    bins = len(order)
    exists = (filters >= 0) & (filters < bins)
    shifted = filters + shift
    exists &= (shifted >= 0) & (shifted < bins)
    return order[shifted.clamp(0, bins - 1)].masked_fill(~exists, bins)


def constant_q_kernel(
    frequency: float, length: int, size: int, lookahead: int, sample_rate: int
) -> Tensor:
    """Return a complex kernel of `size` samples: a complex sine under a Hann window of `length`
    samples that peaks `lookahead` samples before the kernel's end. The window is asymmetric if half
    of it is longer than `lookahead`. The kernel's gain for a sine in tune is 1."""
    fall = min(length // 2, lookahead)
    rise = length - fall
    time = torch.arange(size, dtype=torch.float64) - (size - lookahead)  # 0 at the frame time
    phase = torch.where(time < 0, time / rise, time / fall).clamp(-1, 1)
    window = 0.5 + 0.5 * torch.cos(math.pi * phase)
    wave = torch.polar(window, 2 * math.pi * frequency / sample_rate * time)
    return (wave * (2 / window.sum())).to(torch.complex64)


class SpectralPeaks:
    """Computes the output row CENTS: the deviation of the sound from each pitch.

    In decibels, the response of a filter is nearly a parabola around its own frequency. The vertex
    of the parabola through a peak and its two neighbours is therefore the frequency of the tone,
    to about one cent. The levels around the first few harmonics are summed first, because the
    filters of a low fundamental are slow and would smooth vibrato. If partials are not harmonic
    (bells), or if other notes sound, the result is the peak of the mixture.
    """

    def __init__(self, config: FilterbankConfig, order: Tensor) -> None:
        """order: index of each filter among the features, (bins,), on the features' device."""
        per, bins = config.bins_per_semitone, len(order)
        self._bin_cents = 100.0 / per
        self._weak = _WEAK_DB / DB_SCALE
        self._silence = config.floor_db / 2 / DB_SCALE
        in_tune = per * (torch.arange(PITCHES) - config.lowest_pitch) + per // 2
        harmonics = torch.tensor([round(12 * per * math.log2(h)) for h in HARMONICS])
        near = torch.arange(-NEAR, NEAR + 1)
        # (PITCHES, harmonics, filters)
        filters = in_tune[:, None, None] + harmonics[:, None] + near
        outside = (in_tune < 0) | (in_tune >= bins)
        self._filters = filters.masked_fill(outside[:, None, None], -1).flatten()
        self._order = order
        self._index: dict[int, Tensor] = {}  # by shift

    def __call__(self, features: Tensor, shift: int = 0) -> Tensor:
        """Map features of ``Filterbank.compress``, (frames, bins + 1), to (frames, PITCHES). The
        last feature is silence. shift: number of bins by which the filters are shifted upwards."""
        index = self._index.get(shift)
        if index is None:
            index = feature_indexes(self._filters, shift, self._order.cpu())
            index = self._index[shift] = index.to(self._order.device)
        levels = features.index_select(1, index)
        levels = levels.view(-1, PITCHES, len(HARMONICS), 2 * NEAR + 1)
        strongest = levels.amax((2, 3), keepdim=True)
        levels = torch.maximum(levels, strongest - self._weak)
        level = levels[:, :, 0]
        for harmonic in range(1, len(HARMONICS)):
            level = level + levels[:, :, harmonic]
        top = level[..., 1:-1].argmax(-1, keepdim=True)  # counted from the second filter
        left, peak, right = (level.gather(-1, top + step) for step in range(3))
        curve = (left - 2 * peak + right).clamp(max=-_FLAT)
        vertex = (0.5 * (left - right) / curve).clamp(-0.5, 0.5)
        deviation = ((top + 1 - NEAR + vertex) * self._bin_cents)[..., 0]
        row = 0.5 + deviation.clamp(-RANGE_CENTS, RANGE_CENTS) / SCALE_CENTS
        return torch.where(strongest[..., 0, 0] > self._silence + _SILENT_DB / DB_SCALE, row, 0.0)

    def of_windows(self, features: Tensor, frames: range) -> Tensor:
        """Map features, (batch, bins, GRID), to the row CENTS, (batch, len(frames), PITCHES)."""
        selected = features[..., frames.start : frames.stop].float().transpose(1, 2)
        peaks = self(F.pad(selected, (0, 1), value=self._silence).flatten(0, 1))
        return peaks.view(len(features), len(frames), PITCHES)
