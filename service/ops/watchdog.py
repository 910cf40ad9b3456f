"""The engine in use, which is replaced if its worker hangs.

A thread cannot be stopped from outside, so the engine and its worker are abandoned: pending
requests fail at once, and a new engine with freshly loaded weights takes over. Sessions of the old
engine end their notes and then fail with `internal`, which is retryable.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from prometheus_client import Counter

from service.engine.interface import EngineLike

logger = logging.getLogger(__name__)

NOT_RUNNING = "the model is not loaded yet, or has failed"


class EngineSlot:
    """Holds the engine of an application, and watches its heartbeat.

    Attributes:
        engine: None until the model is loaded.
        build: makes a warm engine; set by the application.
        device: where it runs; `auto` until the model is loaded.
        load_error: why there will be no engine.
        replacing: the engine hung, and a new one is being made, unless the service drains.
    """

    build: Callable[[], Awaitable[EngineLike]]

    def __init__(
        self, device: str, hang_timeout_s: float, draining: asyncio.Event, restarts: Counter
    ) -> None:
        self.engine: EngineLike | None = None
        self.device = device
        self.load_error: str | None = None
        self.replacing = False
        self.hang_timeout_s = hang_timeout_s
        self._draining = draining
        self._restarts = restarts

    @property
    def hangs(self) -> bool:
        """Whether the engine's worker shows no sign of life, or is being replaced for that."""
        return self.replacing or self.heartbeat_age_s > self.hang_timeout_s

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the last sign of life of the engine's worker."""
        return self.engine.heartbeat_age_s if self.engine is not None else 0.0

    @property
    def running(self) -> bool:
        """Whether the engine is loaded and its worker alive."""
        return self.engine is not None and self.engine.ready

    def loaded(self) -> EngineLike:
        """The engine, for admitted clients: none are admitted before it is loaded."""
        assert self.engine is not None
        return self.engine

    def take(self, engine: EngineLike) -> None:
        """Puts a warm engine to work."""
        # Garbage collections leave out what is loaded: walking it would stop all streams for 0.1 s.
        gc.freeze()
        self.engine = engine

    async def watch(self) -> None:
        """Looks several times per timeout; ends when cancelled."""
        pause_s = self.hang_timeout_s / 8
        while True:
            asleep_s = monotonic()
            await asyncio.sleep(pause_s)
            # If the whole process was suspended, the worker could not show a heartbeat either.
            if monotonic() - asleep_s < 2 * pause_s:
                await self.look()

    async def look(self) -> None:
        """Replaces the engine if it hangs; logs a failure to do so, which is retried."""
        if self._draining.is_set() or self.engine is None or not self.hangs:
            return
        if not self.replacing:
            age_s = self.heartbeat_age_s
            logger.error("the engine has had no heartbeat for %.1f s: replacing it", age_s)
            self._restarts.inc()
            self.replacing = True
            self.engine.abandon()
        try:
            self.take(await self.build())
        except Exception:
            logger.exception("cannot build a new engine; retrying")
            return
        self.replacing = False
        logger.info("a new engine took over")
