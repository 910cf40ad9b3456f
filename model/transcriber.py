"""The transcription network: a front-end, a shuffle-exchange network and heads of 128 pitches.

Logits have the shape (batch, heads, FRAMES, PITCHES). Frame i of a window describes sample
HOP * (i + 1) of the window. The heads are:

- "frame": a note sounds;
- "onset": a note starts (1 at the onset, falling linearly to 0 at a distance of 3 hops);
- "velocity": velocity of the note that starts here;
- "offset": a note ends;
- "pedal": position of the sustain pedal, the same at every pitch in range;
- "instrument:NAME": this instrument plays the note that starts here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import (
    FRAMES,
    HOP,
    LOGIT_OFFSET,
    PITCHES,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
    StridedConfig,
)
from model.front_end.filterbank import GRID, Filterbank, SpectralPeaks
from model.front_end.patches import SEMITONES, HarmonicStack, OctavePatches, PitchConvolutions
from model.front_end.strided import StridedFrontEnd
from model.rse import ResidualShuffleExchange
from model.switch import initialise

MASKED_LOGIT = -30.0  # logit of pitches and frames that a network does not predict


class FeatureStream(Protocol):
    """State of one audio stream. Only one thread may use it. Silence precedes the first window."""

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        """Return a window's row, for ``predict_features`` or for ``FastNetwork.predict_rows``.

        Args:
            window: WINDOW samples.
            new_hops: hops by which the window moved since the last call.
            shift: number of bins by which the filters of the new hops are shifted upwards.
        """


class StridedNetwork(nn.Module):
    """The paper's MusicNet network."""

    def __init__(self, config: ModelConfig, front_end: StridedConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.window = front_end.window
        self.front_end = StridedFrontEnd(front_end, config.rse)
        self.rse = ResidualShuffleExchange(config.rse)
        self.head = nn.Linear(config.rse.maps, len(config.heads) * PITCHES)
        initialise(self.head)

    def raw(self, window: Tensor) -> Tensor:
        """Map (batch, samples) to (batch, positions, heads * PITCHES), before the logit offset."""
        out: Tensor = self.head(self.rse(self.front_end(window)))
        return out

    def frames(self, raw: Tensor) -> Tensor:
        """Return logits, (batch, heads, frames, PITCHES), from every (HOP / stride)-th position of
        ``raw``.

        Position p belongs to sample p * stride. As in the released code, however, frame i predicts
        sample HOP * (i + 1) from position i * HOP / stride, one hop earlier. A window of HOP
        samples has one frame, for the sample in its middle.
        """
        step = HOP // self.front_end.stride  # positions per frame
        out = raw[:, : max(1, raw.shape[1] - step) : step] + LOGIT_OFFSET
        return pool_pedal(out.unflatten(2, (-1, PITCHES)).transpose(1, 2), self.heads)

    def crop(self, window: Tensor) -> Tensor:
        """Crop windows, (batch, samples), to the samples in the middle that the network uses."""
        outside = max(0, window.shape[1] - self.window) // 2
        return window if self.window == WINDOW else window[:, outside : outside + self.window]

    def forward(self, window: Tensor) -> Tensor:
        """Map (batch, samples) to logits, (batch, heads, samples / HOP - 1, PITCHES). Frames
        outside a smaller window have the logit MASKED_LOGIT."""
        out = self.frames(self.raw(self.crop(window)))
        outside = (window.shape[1] // HOP - 1 - out.shape[2]) // 2
        return F.pad(out, (0, 0, outside, outside), value=MASKED_LOGIT) if outside > 0 else out

    def by_head(self) -> list[Tensor]:
        """Return views of the heads' parameters, each with the heads as its first axis."""
        return [p.unflatten(0, (-1, PITCHES)) for p in self.head.parameters()]


class FilterbankNetwork(nn.Module):
    """Constant-Q filterbank, pitch convolutions, shuffle-exchange network over octave patches."""

    def __init__(self, config: ModelConfig, front_end: FilterbankConfig) -> None:
        super().__init__()
        heads, channels, maps = len(config.heads), front_end.channels, config.rse.maps
        self.heads = config.heads
        self.lowest_pitch = front_end.lowest_pitch
        self.filterbank = Filterbank(front_end, config.sample_rate)
        self.stack = HarmonicStack(front_end)
        self.convolutions = PitchConvolutions(front_end)
        self.patches = OctavePatches(front_end)
        self.embed = nn.Linear(self.patches.cells * channels, maps)
        self.octave = nn.Parameter(torch.zeros(front_end.octaves, maps))
        self.rse = ResidualShuffleExchange(config.rse)
        self.unembed = nn.Linear(maps, self.patches.cells * heads)
        self.skip = nn.Conv2d(channels, heads, kernel_size=1)
        self.pitch_bias = nn.Parameter(torch.zeros(heads, front_end.octaves * SEMITONES, 1))
        nn.init.xavier_uniform_(self.embed.weight, gain=0.25)
        nn.init.zeros_(self.embed.bias)

    def forward(self, window: Tensor) -> Tensor:
        """Map (batch, context + WINDOW) to logits, (batch, heads, FRAMES, PITCHES). Zeros replace
        a missing part of the context."""
        return self.from_features(self.filterbank(window))

    def from_features(self, features: Tensor) -> Tensor:
        """Map (batch, bins, columns) features to (batch, heads, FRAMES, PITCHES) logits."""
        silence = self.filterbank.compress(features.new_zeros(()))
        x = self.convolutions(self.stack(features, silence))  # (batch, channels, pitches, GRID)
        sequence = self.embed(self.patches.cut(x))  # (batch, positions, m)
        sequence = sequence + self.octave.repeat(self.patches.patches, 1).to(sequence.dtype)
        routed = self.patches.join(self.unembed(self.rse(sequence)))
        logits = (self.skip(x) + routed + self.pitch_bias + LOGIT_OFFSET).transpose(2, 3)
        logits = pool_pedal(logits[:, :, :FRAMES], self.heads)
        out = logits.new_full((*logits.shape[:-1], PITCHES), MASKED_LOGIT, dtype=torch.float32)
        out[..., self.lowest_pitch : self.lowest_pitch + logits.shape[-1]] = logits
        return out

    def by_head(self) -> list[Tensor]:
        """Return views of the heads' parameters, each with the heads as its first axis."""
        routed = [p.unflatten(0, (self.patches.cells, -1)) for p in self.unembed.parameters()]
        skipped = list(self.skip.parameters())
        return [*(p.transpose(0, 1) for p in routed), *skipped, self.pitch_bias]


def pool_pedal(logits: Tensor, heads: tuple[str, ...]) -> Tensor:
    """Replace the logits of head "pedal" at all pitches by their mean, in place. logits: (batch,
    heads, frames, pitches)."""
    if "pedal" in heads:
        row = heads.index("pedal")
        logits[:, row] = logits[:, row].mean(dim=2, keepdim=True)
    return logits


class WindowStream:
    """State of a stream whose windows are computed in full: the latest audio. The last number of a
    row is the shift, which applies to the complete window."""

    def __init__(self, context: int) -> None:
        self._context = context
        self._audio = torch.zeros(context + WINDOW)

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        """Map (WINDOW,) to (context + WINDOW + 1,). Zeros precede the first window."""
        new = min(new_hops * HOP, WINDOW)
        before = self._audio[new : new + self._context]
        self._audio = torch.cat([before.to(window.device), window])
        return F.pad(self._audio, (0, 1), value=float(shift))


def split_rows(rows: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Split rows of a ``WindowStream`` into windows and shifts. Missing shifts are 0."""
    if rows.shape[1] > context + WINDOW:
        return rows[:, :-1], rows[:, -1]
    return rows, rows.new_zeros(len(rows))


class TranscriptionModel(nn.Module):
    """A configured network with its calibration and its card (see :mod:`model.storage`)."""

    def __init__(self, config: ModelConfig, card: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.config = config
        self.card = card or {}
        self.compute_dtype = torch.float32
        match config.front_end:
            case StridedConfig() as front_end:
                self.network: StridedNetwork | FilterbankNetwork = StridedNetwork(config, front_end)
            case FilterbankConfig() as front_end:
                self.network = FilterbankNetwork(config, front_end)
        if config.calibration:
            self.scale = nn.Parameter(torch.ones(PITCHES))
            self.offset = nn.Parameter(torch.zeros(PITCHES))

    def forward(self, window: Tensor) -> Tensor:
        """Map (batch, samples) to uncalibrated logits, (batch, heads, frames, PITCHES)."""
        return self.network(window)

    def calibrate(self, logits: Tensor) -> Tensor:
        """Scale and shift each pitch's frame logits (released code: undoes label smoothing)."""
        if not self.config.calibration:
            return logits
        frame = logits[:, :1] * self.scale + self.offset
        return torch.cat([frame, logits[:, 1:]], dim=1)

    def compute_in(self, dtype: torch.dtype) -> TranscriptionModel:
        """Convert matrices and kernels to this type, in place, for inference. Filters, norms and
        probabilities stay float32."""
        self.compute_dtype = dtype
        for name, module in self.network.named_modules():
            if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) and "filterbank" not in name:
                module.to(dtype)
        return self

    @torch.inference_mode()
    def predict(self, windows: Tensor) -> Tensor:
        """Map (batch, WINDOW) samples, with up to ``config.context`` samples before them, to
        probabilities, (batch, outputs, FRAMES, PITCHES) float32. Raises ValueError for other
        shapes.
        """
        longest = WINDOW + self.config.context
        if windows.ndim != 2 or not WINDOW <= windows.shape[1] <= longest:
            samples = str(WINDOW) if longest == WINDOW else f"{WINDOW} to {longest}"
            raise ValueError(f"expected windows of shape (batch, {samples}), got {windows.shape}")
        return self.predict_features(windows)

    def open_stream(self) -> FeatureStream:
        """Return the state of a new stream of audio. Pass its rows to :meth:`predict_features`."""
        return WindowStream(self.config.context)

    @torch.inference_mode()
    def predict_features(self, features: Tensor) -> Tensor:
        """Map rows of a stream, or windows with their context, to probabilities of the same shape
        as :meth:`predict`."""
        windows, shift = split_rows(features, self.config.context)
        run: Callable[[Tensor], Tensor] = self.network
        features, bank = windows, None
        if isinstance(self.network, FilterbankNetwork):  # the filters stay float32
            bank = self.network.filterbank
            features, run = bank.retuned(bank(windows), shift), self.network.from_features
        reduced = self.compute_dtype != torch.float32
        with torch.autocast(features.device.type, self.compute_dtype, enabled=reduced):
            logits = run(features)
        probabilities = torch.sigmoid(self.calibrate(logits.float()))
        if bank is None:
            return probabilities
        order = torch.arange(bank.bins, device=features.device)
        peaks = SpectralPeaks(bank.config, order).of_windows(features[..., -GRID:], range(FRAMES))
        return torch.cat([probabilities, peaks[:, None]], dim=1)
