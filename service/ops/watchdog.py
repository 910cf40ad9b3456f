"""Replaces an engine whose worker hangs.

A thread cannot be stopped from outside, so the engine is abandoned with its worker: its requests
fail at once, new work is refused, and a new engine with freshly loaded weights takes its place.
Sessions of the old engine end with `internal`, which is retryable, after the ends of their notes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from prometheus_client import Counter

from service.engine.interface import EngineLike
from service.engine.slot import EngineSlot

logger = logging.getLogger(__name__)


class Watchdog:
    """Looks at the heartbeat of the engine; `run` goes on until it is cancelled."""

    def __init__(
        self,
        slot: EngineSlot,
        draining: asyncio.Event,
        build: Callable[[], Awaitable[EngineLike]],
        restarts: Counter,
    ) -> None:
        """Args:
        draining: once set, nothing is replaced any more.
        build: makes a warm engine; called again where it fails.
        restarts: counts the engines that were given up.
        """
        self._slot = slot
        self._draining = draining
        self._build = build
        self._restarts = restarts

    async def run(self) -> None:
        """Watches, a few times in each timeout."""
        pause_s = self._slot.hang_timeout_s / 8
        while True:
            asleep_s = monotonic()
            await asyncio.sleep(pause_s)
            # Where the whole process stood still, the worker had no chance to show a sign either.
            if monotonic() - asleep_s < 2 * pause_s:
                await self.look()

    async def look(self) -> None:
        """Replaces the engine if it hangs or its worker has died; a failure to do so is logged."""
        if self._draining.is_set():
            return
        engine = self._slot.engine
        if engine is None:  # still loading
            return
        if not self._slot.replacing and engine.heartbeat_age_s > self._slot.hang_timeout_s:
            logger.error(
                "the engine shows no sign of life for %.1f s: it is replaced",
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
            logger.exception("no new engine came about; another attempt follows")
            return
        self._slot.replacing = False
        logger.info("a new engine has taken over")
