"""Waiting for a condition that other tasks and callbacks change."""

import asyncio
from collections.abc import Callable


class Changes:
    """Like ``asyncio.Condition``, but notifying needs no ``await``."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all waiting tasks to check again."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)
