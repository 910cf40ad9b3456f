"""What becomes of a live stream that the machine cannot keep up with, step by step.

First its blocks are made longer: twice the frames of a window halve the computing, and come later.
Where even the longest do not help, the session is given up, so that the others stay on time. A
stream that has kept up for long gets its shorter blocks back. No audio is ever left out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from time import monotonic

from service.protocol.faults import ErrorCode, ProtocolError
from service.session.options import MAX_BLOCK_FRAMES
from service.session.session import TranscriptionSession
from service.settings import Settings


class Step(Enum):
    """What is to be done now."""

    STAY = "stay"
    COARSER = "coarser"
    FINER = "finer"
    GIVE_UP = "give_up"


class Ladder:
    """Watches how late one stream is; the caller does what it says, or cannot, and asks again."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self._late_ms = settings.lagging_ms
        self._degrade_after_s = settings.degrade_after_s
        self._recover_after_s = settings.recover_after_s
        self._overload_timeout_s = settings.overload_timeout_s
        self._clock = clock
        self._late_since_s: float | None = None
        self._fine_since_s: float | None = None

    def look(self, late_ms: float, coarsest: bool, finest: bool) -> Step:
        """Args:
        late_ms: audio that should have been transcribed by now (`ArrivalClock.late_ms`).
        coarsest, finest: no longer, no shorter blocks can be had.
        """
        now_s = self._clock()
        if late_ms <= self._late_ms:
            self._late_since_s = None
        elif self._late_since_s is None:
            self._late_since_s = now_s
        if late_ms > self._late_ms / 2:
            self._fine_since_s = None
        elif self._fine_since_s is None:
            self._fine_since_s = now_s
        if self._late_since_s is not None:
            late_s = now_s - self._late_since_s
            if coarsest:
                return Step.GIVE_UP if late_s >= self._overload_timeout_s else Step.STAY
            if late_s >= self._degrade_after_s:
                self._late_since_s = now_s  # a longer block has a time of its own to help
                return Step.COARSER
        elif self._fine_since_s is not None and not finest:
            if now_s - self._fine_since_s >= self._recover_after_s:
                self._fine_since_s = now_s
                return Step.FINER
        return Step.STAY


class QualityControl:
    """Does with one session what its ladder says."""

    def __init__(
        self,
        session: TranscriptionSession,
        settings: Settings,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._session = session
        self._ladder = Ladder(settings, clock)
        self._finest = self._wanted = self._told = session.block_frames

    def keep_up(self, late_ms: float) -> bool:
        """To be called between two pushes; returns whether the blocks have another length now.

        Raises:
            ProtocolError: `overloaded`; the session is to be ended.
        """
        wanted = self._wanted
        step = self._ladder.look(late_ms, 2 * wanted > MAX_BLOCK_FRAMES, wanted == self._finest)
        if step is Step.GIVE_UP:
            raise ProtocolError(
                ErrorCode.OVERLOADED,
                f"the server is {late_ms:.0f} ms late in spite of its longest blocks",
            )
        if step is Step.COARSER:
            self._wanted = 2 * wanted
        elif step is Step.FINER:
            self._wanted = wanted // 2
        self._session.change_blocks(self._wanted)
        changed = self._session.block_frames != self._told
        self._told = self._session.block_frames
        return changed
