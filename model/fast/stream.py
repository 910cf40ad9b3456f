"""One stream's windows through a network with history, from what the window before has left.

A stream keeps its newest columns and the layers of the first half of the first Beneš block, one
or two megabytes. What remains of a window, the rest of the shuffle-exchange network and the heads,
is a function of the row that ``advance`` gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.fast.columns import ColumnNetwork, ColumnState
from model.fast.exchange import FirstHalf
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
        self._layers: list[Tensor] = []  # see FirstHalf.advance

    @torch.inference_mode()
    def advance(self, window: Tensor, new_hops: int) -> Tensor:
        """window: (WINDOW,) -> the middle of the first Beneš block, (positions, m), and the
        columns of the frames that are read, (frames, pitches, channels); flat float32."""
        network = self._network
        if self._state is None or not 0 < new_hops <= network.columns.longest_slide:
            self._state = network.columns.open()
            new = network.columns.advance(self._state, window, network.columns.first)
            self._columns, self._layers = new[-GRID:], []
            first, moved = 0, 0
        else:
            new = network.columns.advance(self._state, window, new_hops)
            self._columns = torch.cat([self._columns[new_hops : new_hops + GRID - len(new)], new])
            first, moved = self._unmoved(GRID - len(new), new_hops)
            if not moved:
                self._layers = []
        changed = network.embedded(self._columns[first:])
        self._layers = network.first_half.advance(self._layers, changed, moved)
        read = self._columns[self._frames.start : self._frames.stop]
        return torch.cat([self._layers[-1].flatten(), read.float().flatten()])

    def _unmoved(self, first: int, new_hops: int) -> tuple[int, int]:
        """The first column of the patches to compute, and how many patches the window moved."""
        per = self._network.patches.frames
        if new_hops % per:  # all patches are cut elsewhere
            return 0, 0
        return max(0, first) // per * per, new_hops // per
