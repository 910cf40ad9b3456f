"""Windows of a stream that are due: others decide where and when they are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, WINDOW

MOST_WINDOWS = 4
"""Windows that may be taken at once."""

SEGMENT_FRAMES = 2048
"""Frames of a recording's segment, including those that are read again: 24 s, and 24 MB of
probabilities with 23 heads."""


@dataclass(frozen=True, slots=True)
class Due:
    """Windows of a stream whose samples have arrived, to be computed and heard in order.

    Attributes:
        samples: of all the windows, which overlap; a view that is valid until the next ``take``.
        windows: how many are to be heard.
        new_hops: hops from each window to the next, and from the stream's last to the first.
        positions: of the network's FRAMES, those to be read.
        refill: further windows before them, which only prepare a network that has not seen what
            came before.
        shifts: of each window, the refill included, the bins by which the filterbank is
            read higher (``model.transcriber.FeatureStream``); empty: none is.
    """

    samples: NDArray[np.float32]
    windows: int
    new_hops: int
    positions: slice
    refill: int = 0
    shifts: tuple[int, ...] = ()

    def read(self) -> list[tuple[NDArray[np.float32], int]]:
        """Each window, [WINDOW], and its shift, oldest first, the refill included."""
        count, step = self.refill + self.windows, self.new_hops * HOP
        starts = range(0, count * step, step)
        windows = [self.samples[start : start + WINDOW] for start in starts]
        return list(zip(windows, self.shifts or count * (0,), strict=True))

    def part(self, first: int, count: int) -> Due:
        """Some of the windows; ``first`` counts from the refill on."""
        step = self.new_hops * HOP
        count = min(count, self.refill + self.windows - first)
        refill = min(count, max(0, self.refill - first))
        samples = self.samples[first * step : (first + count - 1) * step + WINDOW]
        shifts = self.shifts[first : first + count]
        return replace(self, samples=samples, windows=count - refill, refill=refill, shifts=shifts)
