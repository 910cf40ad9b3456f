"""Turns constant-Q features into the positions of the shuffle-exchange network.

The features are stacked harmonically: the channels of each pitch are its fundamental, sub-octave
and overtones. A few small convolutions over pitch and time follow. Each octave of a few adjacent
frames then becomes one position. All octaves share the same weights.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import STEM_REACH, FilterbankConfig
from model.front_end.filterbank import GRID

SEMITONES = 12  # number of semitones in an octave


class HarmonicStack(nn.Module):
    """Maps (batch, bins, frames) to (batch, harmonics, rows, frames), where rows is
    octaves * 12 * bins_per_semitone."""

    def __init__(self, config: FilterbankConfig) -> None:
        super().__init__()
        per_octave = SEMITONES * config.bins_per_semitone
        self.rows = config.octaves * per_octave
        self.shifts = [round(per_octave * math.log2(h)) for h in config.harmonics]

    def forward(self, features: Tensor, silence: Tensor) -> Tensor:
        """Set channel c of each row to the feature `shifts[c]` bins above it, or to silence."""
        bins = features.shape[1]
        below = max(0, -min(self.shifts))
        above = max(0, self.rows + max(self.shifts) - bins)
        padded = F.pad(features - silence, (0, 0, below, above)) + silence
        return torch.stack(
            [padded[:, below + s : below + s + self.rows] for s in self.shifts], dim=1
        )


class PitchConvolutions(nn.Module):
    """Maps the harmonic stack to features of every pitch and frame.

    The stride of the first convolution is the number of bins per semitone. The others are residual.
    The columns before the window (``FilterbankConfig.halo``) are dropped only at the end, so the
    remaining columns have all their left neighbours. Zeros pad the end of the window.
    """

    def __init__(self, config: FilterbankConfig) -> None:
        super().__init__()
        per, channels = config.bins_per_semitone, config.channels
        self.stem = nn.Conv2d(
            len(config.harmonics),
            channels,
            kernel_size=(2 * per - 1, 2 * STEM_REACH + 1),
            stride=(per, 1),
            padding=(per - 1, STEM_REACH),
            bias=False,
        )
        self.stem_norm = nn.BatchNorm2d(channels)
        self.halo = config.halo
        self.layers = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            for _ in range(config.convolutions)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(config.convolutions))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, harmonics, rows, halo + GRID) to (batch, channels, octaves * 12, GRID)."""
        x = F.relu(self.stem_norm(self.stem(x)))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.relu(norm(layer(x)))
        if x.requires_grad and x.is_contiguous(memory_format=torch.channels_last):
            # The slice's gradient has another layout, which all earlier layers would inherit.
            x.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return x[..., self.halo :]


class OctavePatches(nn.Module):
    """Cuts (batch, channels, octaves * 12, GRID) into positions, and joins positions again. Each
    position is one octave of `frames_per_patch` frames. Octaves vary fastest, so the first switch
    layers combine the octaves of a moment, and later layers combine moments."""

    def __init__(self, config: FilterbankConfig) -> None:
        super().__init__()
        self.octaves = config.octaves
        self.frames = config.frames_per_patch
        self.patches = GRID // self.frames  # number of patches in a window; each has all octaves

    @property
    def cells(self) -> int:
        """Number of pitches in an octave times number of frames in a patch."""
        return SEMITONES * self.frames

    @property
    def positions(self) -> int:
        """Length of the sequence."""
        return self.octaves * self.patches

    def cut(self, x: Tensor) -> Tensor:
        """Map (batch, channels, octaves * 12, GRID) to (batch, positions, cells * channels)."""
        batch, channels = x.shape[:2]
        x = x.view(batch, channels, self.octaves, SEMITONES, self.patches, self.frames)
        return x.permute(0, 4, 2, 3, 5, 1).reshape(batch, self.positions, self.cells * channels)

    def join(self, x: Tensor) -> Tensor:
        """Map (batch, positions, cells * channels) to (batch, channels, octaves * 12, frames).
        Accepts any range of adjacent patches. With all patches, frames is GRID."""
        batch, positions = x.shape[:2]
        patches = positions // self.octaves
        x = x.view(batch, patches, self.octaves, SEMITONES, self.frames, -1)
        x = x.permute(0, 5, 2, 3, 1, 4)
        return x.reshape(batch, -1, self.octaves * SEMITONES, patches * self.frames)
