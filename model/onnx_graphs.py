"""The networks as graphs for other runtimes: a batch of windows, or one step of a stream."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import FRAMES, HOP, WINDOW
from model.transcriber import FilterbankNetwork, TranscriptionModel


class WindowGraph(nn.Module):
    """Windows to probabilities.

    Attributes:
        inputs: an example of each input, by name.
        about: what a host must know of them.
    """

    def __init__(self, transcriber: TranscriptionModel) -> None:
        super().__init__()
        self.transcriber = transcriber
        samples = transcriber.config.context + WINDOW
        self.inputs = {"windows": torch.zeros(2, samples)}
        self.about: dict[str, object] = {"samples": samples}

    def forward(self, windows: Tensor) -> Tensor:
        """(batch, context + WINDOW) samples -> (batch, heads, FRAMES, PITCHES)."""
        return torch.sigmoid(self.transcriber.calibrate(self.transcriber(windows)))


class StepGraph(nn.Module):
    """The next hops of a stream to probabilities of the same number of frames.

    It takes the samples of the next hops and the state of the previous step; it returns the frames
    whose look-ahead is complete and the next state, so the host needs no ring buffer. Only the new
    constant-Q columns are computed. The state is the samples that kernels reach back to, and the
    known columns minus silence; zeros, as at the start, mean silence.

    Attributes:
        inputs, about: as of ``WindowGraph``.
    """

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
            raise ValueError("a graph of steps needs a network with a filterbank")
        self.transcriber = transcriber
        self.network = transcriber.network
        self.bank = transcriber.network.filterbank
        self.block_frames = block_frames
        self.positions = slice(newest - block_frames + 1, newest + 1)
        columns = self.bank.columns - self.bank.config.edge - block_frames
        state = {"samples": (self.bank.longest - HOP,), "columns": (self.bank.bins, columns)}
        self.inputs = {"new": torch.zeros(2, HOP * block_frames)}
        self.inputs |= {name: torch.zeros(2, *shape) for name, shape in state.items()}
        self.about: dict[str, object] = {
            "lookahead_hops": lookahead_hops,
            "block_frames": block_frames,
            "first_frame": 1 - lookahead_hops,
            "state": state,
        }

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
        logits = self.network.from_features(F.pad(known, (0, bank.config.edge)) + silence)
        read = self.transcriber.calibrate(logits)[:, :, self.positions]
        begin = HOP * self.block_frames
        return torch.sigmoid(read), audio[:, begin:], known[:, :, self.block_frames :]
