"""Replaces an engine whose worker hangs.

A thread cannot be stopped from outside, so the engine and its worker are abandoned: pending
requests fail at once, and a new engine with freshly loaded weights takes over. Sessions of the old
engine end their notes and then fail with `internal`, which is retryable.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from prometheus_client import Counter

from service.engine.interface import EngineLike
from service.engine.slot import EngineSlot

logger = logging.getLogger(__name__)


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
