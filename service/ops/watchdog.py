"""The engine in use, and the watchdog that replaces it if its worker hangs.

A thread cannot be stopped from outside, so the engine and its worker are abandoned: pending
requests fail at once, and a new engine with freshly loaded weights takes over. Sessions of the old
engine end their notes and then fail with `internal`, which is retryable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from prometheus_client import Counter

from service.engine.interface import EngineLike

logger = logging.getLogger(__name__)

NOT_RUNNING = "the model is not loaded yet, or has failed"


class EngineSlot:
    """Holds the engine of an application.

    Attributes:
        engine: None until the model is loaded.
        device: where it runs; `auto` until the model is loaded.
        load_error: why there will be no engine.
        replacing: the engine hung, and a new one is being made.
    """

    def __init__(self, device: str, hang_timeout_s: float) -> None:
        """hang_timeout_s: time without a heartbeat after which the engine's worker has hung."""
        self.engine: EngineLike | None = None
        self.device = device
        self.load_error: str | None = None
        self.replacing = False
        self.hang_timeout_s = hang_timeout_s

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


class Watchdog:
    """Watches the engine's heartbeat; `run` ends when cancelled."""

    def __init__(
        self,
        slot: EngineSlot,
        draining: asyncio.Event,
        build: Callable[[], Awaitable[EngineLike]],
        restarts: Counter,
    ) -> None:
        """Args:
        draining: once set, nothing is replaced.
        build: makes a warm engine; retried if it fails.
        restarts: counts abandoned engines.
        """
        self._slot = slot
        self._draining = draining
        self._build = build
        self._restarts = restarts

    async def run(self) -> None:
        """Checks several times per timeout."""
        pause_s = self._slot.hang_timeout_s / 8
        while True:
            asleep_s = monotonic()
            await asyncio.sleep(pause_s)
            # If the whole process was suspended, the worker could not show a heartbeat either.
            if monotonic() - asleep_s < 2 * pause_s:
                await self.look()

    async def look(self) -> None:
        """Replaces the engine if it hangs or its worker died; logs a failure to do so."""
        if self._draining.is_set():
            return
        engine = self._slot.engine
        if engine is None:  # still loading
            return
        if not self._slot.replacing and engine.heartbeat_age_s > self._slot.hang_timeout_s:
            logger.error(
                "the engine has had no heartbeat for %.1f s: replacing it",
                engine.heartbeat_age_s,
            )
            self._restarts.inc()
            self._slot.replacing = True
            engine.abandon()
        if not self._slot.replacing:
            return
        try:
            self._slot.engine = await self._build()
        except Exception:
            logger.exception("cannot build a new engine; retrying")
            return
        self._slot.replacing = False
        logger.info("a new engine took over")
