"""Rows in order of time, of which a moving window shows the newest.

Rows that stay as the window moves are not copied: the window moves through a longer tensor, and is
copied back to its start when it reaches the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SPARE = 2  # the tensor is longer than the window by this fraction of it, 1 / _SPARE


class Sliding:
    """The newest rows of a stream."""

    def __init__(self, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        """shape: of the rows that the window shows."""
        self._shown = shape[0]
        self._rows = torch.empty(shape[0] + shape[0] // _SPARE, *shape[1:], dtype=dtype)
        self._first = 0

    def move(self, rows: int, stay: int) -> Tensor:
        """The shown rows after moving by some, of which the first `stay` are valid and the others
        must be written. A view that is valid until the next call."""
        first = self._first + rows
        if first + self._shown > len(self._rows):
            before, self._rows = self._rows, torch.empty_like(self._rows)
            self._rows[:stay] = before[first : first + stay]
            first = 0
        self._first = first
        return self._rows[first : first + self._shown]
