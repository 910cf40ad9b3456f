"""State of a stream in a network with history: what one window leaves to the next.

A stream keeps its columns and, for a few windows, the layers of the first half of the first Beneš
block: one to four megabytes. The rest of the shuffle-exchange network and the heads are a function
of the row that ``advance`` returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.fast.columns import ColumnNetwork, ColumnState
from model.fast.exchange import FirstHalf, Kept
from model.filterbank import GRID
from model.patches import OctavePatches


@dataclass(frozen=True)
class StreamedNetwork:
    """The part of a network whose state streams keep.

    Attributes:
        columns: filterbank and convolutions.
        patches: cut from the columns.
        embed: maps a patch to the features of a position.
        octave: (positions, m) float32, added to the features.
        first_half: of the first Beneš block.
    """

    columns: ColumnNetwork
    patches: OctavePatches
    embed: nn.Linear
    octave: Tensor
    first_half: FirstHalf

    def embedded(self, columns: Tensor) -> Tensor:
        """The newest columns, (columns, pitches, channels) in whole patches -> the newest
        positions, (positions, m) float32."""
        per, octaves = self.patches.frames, self.patches.octaves
        cells = columns.view(-1, per, octaves, columns.shape[1] // octaves, columns.shape[2])
        cells = cells.permute(0, 2, 3, 1, 4).reshape(-1, self.embed.in_features)
        return self.embed(cells) + self.octave[-len(cells) :]


class NetworkStream:
    """The state of one stream; used by one thread (see ``model.transcriber.FeatureStream``).

    The first window is computed as if preceded by silence; so is a window that moved farther than
    the filterbank can slide.
    """

    def __init__(self, network: StreamedNetwork, frames: range) -> None:
        """frames: those read from each window."""
        self._network = network
        self._frames = frames
        self._state: ColumnState | None = None
        self._columns: Tensor  # (GRID, pitches, channels)
        self._kept: list[Kept]
        self._hop = 0  # end of the window, counted from the first window's end

    @torch.inference_mode()
    def advance(self, window: Tensor, new_hops: int) -> Tensor:
        """window: (WINDOW,) -> the middle of the first Beneš block, (positions, m), and the
        columns of the frames that are read, (frames, pitches, channels); flat float32."""
        network = self._network
        if self._state is None or not 0 < new_hops <= network.columns.longest_slide:
            self._state, self._kept = network.columns.open(), network.first_half.open()
            self._columns = network.columns.advance(self._state, window, network.columns.first)
            self._columns = self._columns[-GRID:]
        else:
            new = network.columns.advance(self._state, window, new_hops)[-GRID:]
            stay = self._columns[new_hops : new_hops + GRID - len(new)]
            self._columns = torch.cat([stay, new])
            self._hop += new_hops
        middle = network.first_half.advance(self._kept, self._hop, self._embedded)
        read = self._columns[self._frames.start : self._frames.stop]
        return torch.cat([middle.flatten(), read.float().flatten()])

    def _embedded(self, first: int) -> Tensor:
        network = self._network
        return network.embedded(self._columns[first * network.patches.frames :])
