"""State of a stream in a network with history: what one window leaves to the next.

A stream keeps its columns and, for a few windows, the layers of the first half of the first Beneš
block: one to five megabytes. The rest of the shuffle-exchange network and the heads are a function
of the row that ``advance`` returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.config import HOP
from model.fast.columns import ColumnNetwork
from model.fast.exchange import FirstHalf, Kept
from model.fast.sliding import Sliding
from model.front_end.filterbank import GRID
from model.front_end.patches import OctavePatches


@dataclass(frozen=True)
class StreamedNetwork:
    """The part of a network whose state streams keep."""

    columns: ColumnNetwork
    """Filterbank and convolutions."""
    patches: OctavePatches
    embed: nn.Linear
    """Maps a patch to the features of a position."""
    octave: Tensor
    """(positions, m) float32, added to the features."""
    first_half: FirstHalf
    """Of the first Beneš block."""

    def embed_to(self, out: Tensor, columns: Tensor) -> None:
        """Writes the newest positions, (..., positions, m) float32, given the newest columns,
        (..., columns, pitches, channels) in whole patches."""
        per, octaves = self.patches.frames, self.patches.octaves
        cells = columns.unflatten(-2, (octaves, -1)).unflatten(-4, (-1, per))
        cells = cells.movedim(-4, -2).reshape(-1, self.embed.in_features)
        torch.add(self.embed(cells).view(out.shape), self.octave[-out.shape[-2] :], out=out)


class NetworkStream:
    """The state of one stream; used by one thread (see ``model.transcriber.FeatureStream``).

    The first window is computed as if preceded by silence; so is a window that moved farther than
    the filterbank can slide.
    """

    def __init__(self, network: StreamedNetwork, frames: range) -> None:
        """frames: those read from each window."""
        self._network = network
        self._frames = frames
        self._state: list[Tensor] | None = None
        self._grid: Sliding
        self._columns: Tensor  # (GRID, pitches, channels)
        self._kept: list[Kept]
        self._hop = 0  # end of the window, counted from the first window's end

    @torch.inference_mode()
    def advance(self, window: Tensor, new_hops: int) -> Tensor:
        """window: (WINDOW,) -> the middle of the first Beneš block, (positions, m) in the order
        of ``FastShuffleExchange.finish``, and the columns of the frames that are read,
        (frames, pitches, channels); flat float32."""
        network = self._network
        if self._state is None or not 0 < new_hops <= network.columns.longest_slide:
            self._state, self._kept = network.columns.open(), network.first_half.open()
            new = network.columns.advance(self._state, window, network.columns.first)[0, -GRID:]
            self._grid = Sliding(GRID, *new.shape[1:], dtype=new.dtype)
        else:
            new = network.columns.advance(self._state, window, new_hops)[0, -GRID:]
            self._hop += new_hops
        stay = GRID - len(new)
        self._columns = self._grid.move(new_hops if stay else 0, stay)
        self._columns[stay:] = new
        read = self._columns[self._frames.start : self._frames.stop]
        row = torch.empty(network.octave.numel() + read.numel())
        middle, rest = row.split_with_sizes([network.octave.numel(), read.numel()])
        rest.view(read.shape).copy_(read)
        network.first_half.advance(
            self._kept, self._hop, self._embed, middle.view(network.octave.shape)
        )
        return row

    def together(self, new_hops: int) -> bool:
        """Whether :meth:`advance_together` can compute windows that move by so many hops."""
        columns = self._network.columns
        started = self._state is not None and new_hops <= columns.longest_slide
        changed = new_hops + columns.reach
        enough = GRID - changed <= new_hops and changed <= GRID
        return started and enough and self._network.first_half.together(self._kept, new_hops)

    @torch.inference_mode()
    def advance_together(self, windows: Sequence[Tensor], new_hops: int) -> list[Tensor]:
        """The rows of :meth:`advance` for a stream's next windows."""
        assert self._state is not None
        network, new = self._network, new_hops * HOP
        audio = torch.cat([windows[0], *(window[-new:] for window in windows[1:])])
        columns = network.columns.advance(self._state, audio, new_hops, len(windows))
        stay = GRID - columns.shape[1]
        grid = columns.new_empty(len(windows), *self._columns.shape)
        grid[:, stay:] = columns
        grid[0, :stay] = self._grid.newest(columns.shape[1])[new_hops - stay : new_hops]
        grid[1:, :stay] = columns[:-1, new_hops - stay : new_hops]
        self._grid.adopt(columns, new_hops)
        read = grid[:, self._frames.start : self._frames.stop]
        rows = torch.empty(len(windows), network.octave.numel() + read[0].numel())
        middle, rest = rows.tensor_split([network.octave.numel()], dim=1)
        rest.view(read.shape).copy_(read)
        hops = [self._hop + number * new_hops for number in range(1, len(windows) + 1)]
        self._hop = hops[-1]

        def embed(first: int, out: Tensor) -> None:
            network.embed_to(out, grid[:, first * network.patches.frames :])

        out = middle.view(len(windows), *network.octave.shape)
        network.first_half.advance_together(self._kept, hops, embed, out)
        return list(rows)

    def _embed(self, first: int, out: Tensor) -> None:
        network = self._network
        network.embed_to(out, self._columns[first * network.patches.frames :])
