"""Workers for a program without an event loop: the library and its command."""

from __future__ import annotations

import asyncio
from threading import Thread

from service.workers.pool import Pool


class BackgroundPool:
    """Runs a pool's event loop in a thread; its ``pool`` computes recordings for other threads."""

    def __init__(self, pool: Pool) -> None:
        """Returns when the workers have loaded the model. Raises EngineError if one cannot."""
        self.pool = pool
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="workers", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(pool.start(), self._loop).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers; idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self.pool.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
