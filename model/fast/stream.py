"""State of a stream on a processor: what one window leaves to the next.

A stream keeps its columns and, for a few windows, the layers of the first half of the first Beneš
block: one to four megabytes. The rest of the shuffle-exchange network and the heads are a function
of the row that ``advance`` returns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from model.config import HOP
from model.fast.columns import ColumnNetwork
from model.fast.exchange import FirstHalf, Kept, whole_windows
from model.front_end.filterbank import GRID


class NetworkStream:
    """The state of one stream; used by one thread (see ``model.transcriber.FeatureStream``). The
    first window is computed as if preceded by silence; so is a window that moved farther than the
    filterbank can slide."""

    def __init__(self, columns: ColumnNetwork, first_half: FirstHalf, frames: range) -> None:
        """frames: those read from each window."""
        self._network = columns
        self._first_half = first_half
        self._frames = frames
        self._state: list[Tensor] | None = None
        self._columns: Tensor | None = None  # (GRID, pitches, channels)
        self._peaks: Tensor | None = None  # (complete columns, PITCHES)
        self._kept: list[Kept] = []
        self._hop = 0  # end of the window, counted from the stream's beginning

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        """window: (WINDOW,) -> the middle of the first Beneš block, (positions, m) in the order
        of ``FastShuffleExchange.finish``, and of the frames that are read the columns, (frames,
        pitches, channels), and peaks, (frames, PITCHES); flat float32."""
        return self._advance([window], new_hops, shift)[0]

    def together(self, new_hops: int) -> bool:
        """Whether :meth:`advance_together` takes several windows that move by ``new_hops`` hops."""
        started = self._state is not None and new_hops <= self._network.longest_slide
        changed = new_hops + self._network.reach
        enough = GRID - changed <= new_hops and changed <= GRID
        return started and enough and self._first_half.together(new_hops)

    def advance_together(
        self, windows: Sequence[Tensor], new_hops: int, shift: int = 0
    ) -> list[Tensor]:
        """The rows of :meth:`advance` for a stream's next windows."""
        return self._advance(windows, new_hops, shift)

    @torch.inference_mode()
    def _advance(self, windows: Sequence[Tensor], new_hops: int, shift: int) -> list[Tensor]:
        audio, new, count = windows[0], new_hops, len(windows)
        if self._state is None or not 0 < new_hops <= self._network.longest_slide:
            self._state, self._kept = self._network.open(), self._first_half.open()
            new = self._network.first
        elif count > 1:
            audio = torch.cat([audio, *(window[-new_hops * HOP :] for window in windows[1:])])
        columns, peaks = self._network.advance(self._state, audio, new, count, shift)
        grid = whole_windows(self._columns, columns[:, -GRID:], GRID, new_hops)
        complete = GRID - self._network.edge
        peaks = whole_windows(self._peaks, peaks[:, -complete:], complete, new_hops)
        self._columns, self._peaks = grid[-1], peaks[-1]
        hops = [self._hop + number * new_hops for number in range(1, count + 1)]
        self._hop = hops[-1]
        middle = self._first_half.advance(self._kept, hops, grid)
        first, stop = self._frames.start, self._frames.stop
        read = grid[:, first:stop].flatten(1).float()
        peaks = F.pad(peaks[:, first:stop], (0, 0, 0, max(0, stop - max(first, complete))))
        return list(torch.cat([middle.flatten(1), read, peaks.flatten(1)], dim=1))
