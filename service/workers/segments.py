"""Segments of recordings, shared out over the workers, with the same bits from whichever.

Up to the middle of the network a stream's windows are computed one after the other, so a recording
that is one stream would keep one core busy. What a stream keeps is a function of its last
``ModelConfig.refill_hops`` hops. A segment therefore begins with the windows before it, which
nothing reads, and then has the bits of a single pass::

    windows    0 .............. 63 | 64 ............ 127 | 128 ...
    worker 1   ####################
    worker 2                ++++++++ ###################             + computed, not read
    worker 1                                     ++++++++ ########## ...
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from service.stream.windows import Due, EngineError, Probabilities
from service.workers.link import Link
from service.workers.messages import SLOTS, Computed, Segment

ENDED = "the service has ended"
_ELSEWHERE = np.zeros(0, np.float32)


class Asked:
    """A segment that a recording waits for; made in any thread."""

    def __init__(self, segment: Due, for_piano: bool = False) -> None:
        self.segment = segment
        self.for_piano = for_piano
        self.future: Future[Probabilities] = Future()

    def begin(self) -> bool:
        """Whether somebody waits for it; if so, it cannot be cancelled any more."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def fail(self, error: str) -> None:
        if self.begin():
            self.future.set_exception(EngineError(error))


class Segments:
    """Those that wait or are computed. Used from the event loop."""

    def __init__(self, links: Sequence[Link]) -> None:
        """links: the workers, as they come and go."""
        self._links = links
        self._waiting: deque[Asked] = deque()
        self._computing: dict[tuple[Link, int], Asked] = {}  # by slot
        self._closed = False

    def ask(self, asked: Asked) -> None:
        if self._closed:
            asked.fail(ENDED)
            return
        self._waiting.append(asked)
        self.share_out()

    def share_out(self) -> None:
        """Give waiting segments to workers with a free slot, the freest first."""
        while self._waiting:
            ways = [[(link, slot) for slot in range(SLOTS)] for link in self._links if link.up]
            free = [[place for place in way if place not in self._computing] for way in ways]
            places = max(free, key=len, default=[])
            if not places:
                return
            asked = self._waiting.popleft()
            if not asked.begin():
                continue
            link, slot = places[0]
            self._computing[link, slot] = asked
            samples = asked.segment.samples
            link.samples[slot, : len(samples)] = samples
            due = replace(asked.segment, samples=_ELSEWHERE)
            link.send(Segment(slot, len(samples), due, asked.for_piano))

    def computed(self, link: Link, done: Computed) -> None:
        """A worker has written a segment's probabilities into its slot, or failed on it."""
        asked = self._computing.pop((link, done.slot))
        if done.error is not None:
            asked.fail(done.error)
        else:
            # Copied: whoever reads it may be slow.
            values = link.probabilities[done.slot, : math.prod(done.shape)].copy()
            asked.future.set_result(values.reshape(done.shape))
        self.share_out()

    def lost(self, link: Link) -> None:
        """A worker has ended: others compute what it had."""
        lost = [key for key in self._computing if key[0] is link]
        self._waiting.extendleft([self._computing.pop(key) for key in reversed(lost)])
        self.share_out()

    def close(self) -> None:
        """What waits fails."""
        self._closed = True
        for asked in [*self._waiting, *self._computing.values()]:
            asked.fail(ENDED)
        self._waiting.clear()
        self._computing.clear()
