"""One stream's windows through a network with history, from what the window before has left.

A stream keeps its columns and the layers of the first half of the first Beneš block, the latter of
some windows: one to four megabytes. What remains of a window, the rest of the shuffle-exchange
network and the heads, is a function of the row that ``advance`` gives.
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
    """The part of a network that streams keep state of.

    Attributes:
        columns: filterbank and convolutions.
        patches: of the columns.
        embed: a patch to the features of a position.
        octave: (positions, m) float32, added to these.
        first_half: of the first Beneš block.
    """

    columns: ColumnNetwork
    patches: OctavePatches
    embed: nn.Linear
    octave: Tensor
    first_half: FirstHalf

    def embedded(self, columns: Tensor) -> Tensor:
        """The newest columns (columns, pitches, channels), whole patches of them, to the newest
        positions, (positions, m) float32."""
        per, octaves = self.patches.frames, self.patches.octaves
        cells = columns.view(-1, per, octaves, columns.shape[1] // octaves, columns.shape[2])
        cells = cells.permute(0, 2, 3, 1, 4).reshape(-1, self.embed.in_features)
        return self.embed(cells) + self.octave[-len(cells) :]


class NetworkStream:
    """The state of one stream; used by one thread (see ``model.transcriber.FeatureStream``).

    The first window is computed as if silence came before it, and one that moved further than the
    filterbank slides as if it were the first.
    """

    def __init__(self, network: StreamedNetwork, frames: range) -> None:
        """frames: of each window, the ones that are read."""
        self._network = network
        self._frames = frames
        self._state: ColumnState | None = None
        self._columns: Tensor  # (GRID, pitches, channels)
        self._kept: list[Kept]
        self._hop = 0  # at which the window ends, from the first window's on

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
