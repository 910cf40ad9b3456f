"""Places for sessions and uploads: limits in total and per client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from service.access.clients import Client


class Places:
    """A fixed number of places, taken without waiting."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def free(self) -> bool:
        """Whether a place is free."""
        return self.taken < self.total

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Holds a place while the block runs; yields False, and holds none, where all are taken."""
        if not self.free:
            yield False
            return
        self.taken += 1
        self._empty.clear()
        try:
            yield True
        finally:
            self.taken -= 1
            if not self.taken:
                self._empty.set()

    async def wait_until_empty(self) -> None:
        """Returns once no place is taken."""
        await self._empty.wait()


class ClientPlaces:
    """A fixed number of places for each client."""

    def __init__(self, each: int) -> None:
        self.each = each
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, client: Client, most: int | None = None) -> Iterator[bool]:
        """Holds a place while the block runs; yields False, and holds none, where all are taken."""
        if self._taken[client.name] >= (most or self.each):
            yield False
            return
        self._taken[client.name] += 1
        try:
            yield True
        finally:
            self._taken[client.name] -= 1
            if not self._taken[client.name]:
                del self._taken[client.name]
