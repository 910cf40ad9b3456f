"""The networks as graphs for other runtimes: a batch of windows, or one step of a stream.

A step takes the samples of the next hops and the state of the previous step; it returns the frames
whose look-ahead is complete and the next state, so the host needs no ring buffer. Initial state
tensors are zeros, which mean silence.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import FRAMES, HOP, WINDOW
from model.transcriber import FilterbankNetwork, TranscriptionModel


class WindowGraph(nn.Module):
    """Windows to probabilities."""

    def __init__(self, transcriber: TranscriptionModel) -> None:
        super().__init__()
        self.transcriber = transcriber

    def forward(self, windows: Tensor) -> Tensor:
        """(batch, context + WINDOW) samples -> (batch, heads, FRAMES, PITCHES)."""
        logits = self.transcriber(windows)
        return torch.sigmoid(self.transcriber.calibrate(logits))


class StepGraph(nn.Module, ABC):
    """The next hops of a stream to probabilities of the same number of frames.

    ``forward`` takes (batch, block_frames * HOP) samples and the state; it returns probabilities
    (batch, heads, block_frames, PITCHES) and the next state.
    """

    def __init__(
        self, transcriber: TranscriptionModel, lookahead_hops: int, block_frames: int
    ) -> None:
        """Args:
            lookahead_hops: from the newest frame to the end of the audio.
            block_frames: hops, and frames, of a step.

        Raises:
            ValueError: they do not fit into a window.
        """
        super().__init__()
        newest = FRAMES - lookahead_hops
        if lookahead_hops < 1 or not 1 <= block_frames <= newest + 1:
            raise ValueError(
                f"a look-ahead of {lookahead_hops} hops and blocks of {block_frames} frames do not "
                f"fit into a window of {FRAMES} frames"
            )
        self.transcriber = transcriber
        self.block_frames = block_frames
        self.positions = slice(newest - block_frames + 1, newest + 1)

    @property
    @abstractmethod
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the state tensors, without the batch axis."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities of the step's frames, from the logits of a window."""
        return torch.sigmoid(self.transcriber.calibrate(logits)[:, :, self.positions])


class WaveformStep(StepGraph):
    """Step of a network that reads samples; the state is the rest of its window."""

    @property
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """The samples before the new ones."""
        return {"samples": (WINDOW - HOP * self.block_frames,)}

    def forward(self, new: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat([samples, new], dim=1)
        return self.probabilities(self.transcriber(window)), window[:, HOP * self.block_frames :]


class FilterbankStep(StepGraph):
    """Step of a network with a filterbank; only the new constant-Q columns are computed."""

    def __init__(
        self, transcriber: TranscriptionModel, lookahead_hops: int, block_frames: int
    ) -> None:
        super().__init__(transcriber, lookahead_hops, block_frames)
        assert isinstance(transcriber.network, FilterbankNetwork)
        self.network = transcriber.network
        self.bank = transcriber.network.filterbank
        self.edge = self.bank.config.lookahead // HOP  # last columns, whose kernels are incomplete

    @property
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """The samples that kernels reach back to, and the known columns minus silence."""
        columns = self.bank.columns - self.edge - self.block_frames
        return {"samples": (self.bank.longest - HOP,), "columns": (self.bank.bins, columns)}

    def forward(
        self, new: Tensor, samples: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        bank = self.bank
        audio = torch.cat([samples, new], dim=1)
        silence = bank.compress(audio.new_zeros(()))
        fresh = bank.compress(bank.power(audio)) - silence  # (batch, bins, block_frames)
        known = torch.cat([columns, fresh], dim=2)
        logits = self.network.from_features(bank.mask(F.pad(known, (0, self.edge)) + silence))
        begin = HOP * self.block_frames
        return self.probabilities(logits), audio[:, begin:], known[:, :, self.block_frames :]


def step_graph(
    transcriber: TranscriptionModel, lookahead_hops: int, block_frames: int
) -> StepGraph:
    """The step graph for a transcriber's front-end. Raises ValueError (see ``StepGraph``)."""
    filtered = isinstance(transcriber.network, FilterbankNetwork)
    kind = FilterbankStep if filtered else WaveformStep
    return kind(transcriber, lookahead_hops, block_frames)
