"""The networks as graphs for other runtimes: a batch of windows, or one step of a stream.

A step takes the samples of the next hops and the state of the previous step; it returns the frames
whose look-ahead is complete and the next state, so the host needs no ring buffer. Initial state
tensors are zeros, which mean silence.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import FRAMES, HOP
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


class StepGraph(nn.Module):
    """The next hops of a stream to probabilities of the same number of frames, for a network with a
    filterbank; only the new constant-Q columns are computed."""

    def __init__(
        self, transcriber: TranscriptionModel, lookahead_hops: int, block_frames: int
    ) -> None:
        """Args:
            lookahead_hops: from the newest frame to the end of the audio.
            block_frames: hops, and frames, of a step.

        Raises:
            ValueError: they do not fit into a window, or the network has no filterbank.
        """
        super().__init__()
        newest = FRAMES - lookahead_hops
        if lookahead_hops < 1 or not 1 <= block_frames <= newest + 1:
            raise ValueError(
                f"a look-ahead of {lookahead_hops} hops and blocks of {block_frames} frames do not "
                f"fit into a window of {FRAMES} frames"
            )
        if not isinstance(transcriber.network, FilterbankNetwork):
            raise ValueError(f"{transcriber.config.name} has no filterbank, which steps need")
        self.transcriber = transcriber
        self.block_frames = block_frames
        self.positions = slice(newest - block_frames + 1, newest + 1)
        self.network = transcriber.network
        self.bank = transcriber.network.filterbank
        self.edge = self.bank.config.lookahead // HOP  # last columns, whose kernels are incomplete

    @property
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes, without the batch axis, of the samples that kernels reach back to and of the
        known columns minus silence."""
        columns = self.bank.columns - self.edge - self.block_frames
        return {"samples": (self.bank.longest - HOP,), "columns": (self.bank.bins, columns)}

    def forward(
        self, new: Tensor, samples: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, block_frames * HOP) samples and the state -> probabilities (batch, heads,
        block_frames, PITCHES) and the next state."""
        bank = self.bank
        audio = torch.cat([samples, new], dim=1)
        silence = bank.compress(audio.new_zeros(()))
        fresh = bank.compress(bank.power(audio)) - silence  # (batch, bins, block_frames)
        known = torch.cat([columns, fresh], dim=2)
        logits = self.network.from_features(bank.mask(F.pad(known, (0, self.edge)) + silence))
        probabilities = torch.sigmoid(self.transcriber.calibrate(logits)[:, :, self.positions])
        begin = HOP * self.block_frames
        return probabilities, audio[:, begin:], known[:, :, self.block_frames :]
