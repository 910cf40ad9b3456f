"""How far from each pitch the sound is: spectral peaks between the filters of a semitone.

A filter hears a tone of another frequency by some decibels less, nearly a parabola about its
own, so the vertex of the parabola through a peak and its two neighbours is the tone's frequency, to
a cent. The filters about the first few harmonics are averaged first: those of a low fundamental are
slow, and would smooth a vibrato away. Where harmonics are no multiples (bells) or other notes
sound, the peak is that of the mixture.

It needs no training and no weights beyond those of the filterbank.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from model.cents import RANGE_CENTS, SCALE_CENTS
from model.config import PITCHES, FilterbankConfig
from model.front_end.filterbank import DB_SCALE, places

HARMONICS = (1, 2, 3, 4)
_WEAK_DB = 30.0  # harmonics so far below the strongest say nothing
_FLAT = 0.02  # least curvature of a peak, in units of features: 0.4 dB
_SILENT_DB = 6.0  # above the filterbank's floor
NEAR = 2  # filters on either side of the pitch's own


class SpectralPeaks:
    """The deviation of the peak at every pitch, encoded as a head's row (``model.cents``)."""

    def __init__(self, config: FilterbankConfig, order: Tensor) -> None:
        """order: the place of each filter among the features, (bins,), on the device of use."""
        per, bins = config.bins_per_semitone, len(order)
        self._bin_cents = 100.0 / per
        self._weak = _WEAK_DB / DB_SCALE
        self._silence = config.floor_db / 2 / DB_SCALE
        own = per * (torch.arange(PITCHES) - config.lowest_pitch) + per // 2
        harmonic = torch.tensor([round(12 * per * math.log2(h)) for h in HARMONICS])
        near = torch.arange(-NEAR, NEAR + 1)
        # (PITCHES, harmonics, filters)
        filters = own[:, None, None] + harmonic[:, None] + near
        outside = (own < 0) | (own >= bins)
        self._filters = filters.masked_fill(outside[:, None, None], -1).flatten()
        self._order = order
        self._index: dict[int, Tensor] = {}  # by shift

    def __call__(self, features: Tensor, shift: int = 0) -> Tensor:
        """(frames, bins + 1) of ``Filterbank.compress``, the last bin silent, whose filters are
        read ``shift`` bins higher -> (frames, PITCHES)."""
        index = self._index.get(shift)
        if index is None:
            index = places(self._filters, shift, self._order.cpu()).to(self._order.device)
            self._index[shift] = index
        heard = features.index_select(1, index)
        heard = heard.view(-1, PITCHES, len(HARMONICS), 2 * NEAR + 1)
        strongest = heard.amax((2, 3), keepdim=True)
        heard = torch.maximum(heard, strongest - self._weak)
        level = heard[:, :, 0]
        for harmonic in range(1, len(HARMONICS)):
            level = level + heard[:, :, harmonic]
        top = level[..., 1:-1].argmax(-1, keepdim=True)  # counted from the second filter
        left, peak, right = (level.gather(-1, top + step) for step in range(3))
        curve = (left - 2 * peak + right).clamp(max=-_FLAT)
        vertex = (0.5 * (left - right) / curve).clamp(-0.5, 0.5)
        deviation = ((top + 1 - NEAR + vertex) * self._bin_cents)[..., 0]
        row = 0.5 + deviation.clamp(-RANGE_CENTS, RANGE_CENTS) / SCALE_CENTS
        return torch.where(strongest[..., 0, 0] > self._silence + _SILENT_DB / DB_SCALE, row, 0.0)

    def of_windows(self, features: Tensor, frames: range) -> Tensor:
        """The peaks of these frames: features (batch, bins, GRID) -> (batch, frames, PITCHES)."""
        read = features[..., frames.start : frames.stop].float().transpose(1, 2)
        peaks = self(F.pad(read, (0, 1), value=self._silence).flatten(0, 1))
        return peaks.view(len(features), len(frames), PITCHES)
