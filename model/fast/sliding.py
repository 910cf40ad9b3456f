"""Rows in order of time, of which a moving window shows the newest.

Rows that stay as the window moves are not copied: the window moves through a longer tensor, and is
copied back to its start when it reaches the end.
"""

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
        self._adopted: tuple[Tensor, int] | None = None

    def move(self, rows: int, stay: int) -> Tensor:
        """The shown rows after moving by some, of which the first `stay` are valid and the others
        must be written. A view that is valid until the next call."""
        if self._adopted is not None:
            (*_, before, new), moved = self._adopted
            stayed = self._shown - len(new)
            self._rows, self._first = torch.cat([before[moved - stayed : moved], new]), 0
            self._adopted = None
        first = self._first + rows
        if first + self._shown > len(self._rows):
            before, self._rows = self._rows, torch.empty_like(self._rows)
            self._rows[:stay] = before[first : first + stay]
            first = 0
        self._first = first
        return self._rows[first : first + self._shown]

    def newest(self, count: int) -> Tensor:
        """The last of the shown rows."""
        if self._adopted is not None:
            return self._adopted[0][-1, -count:]
        stop = self._first + self._shown
        return self._rows[stop - count : stop]

    def adopt(self, newest: Tensor, rows: int) -> None:
        """Show the last of several windows, each moved by `rows`. newest: (windows, newest rows),
        at least two windows and so many rows that what stays is among those of the window before.
        """
        self._adopted = newest, rows
