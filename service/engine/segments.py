"""Places in the engine: of a stream, and of a recording, whose segments are computed at once.

Up to the middle of the network a stream's windows are computed one after the other, so a recording
that is one stream keeps little more than one core busy. What a stream keeps is a function of its
last ``ModelConfig.refill_hops`` hops. A segment therefore begins in a stream of its own with the
windows before it, which nothing reads, and then has the bits of a single pass::

    windows    0 .............. 63 | 64 ............ 127 | 128 ...
    stream 1   ####################
    stream 2                ++++++++ ###################             + computed, not read
    stream 3                                     ++++++++ ########## ...

Answers are futures in the order of the windows, so a caller that awaits them sees one stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby

from service.engine.batching import (
    Priority,
    Probabilities,
    Request,
    RequestQueue,
    RequestStream,
    Window,
)

SEGMENT_WINDOWS = 64
MOST_SEGMENTS = 4
"""Segments at once: their answers wait in memory, 24 MB each for 23 heads in blocks of 32."""
_MOST_REFILL = SEGMENT_WINDOWS // 8  # windows; a recording that needs more is one segment


class EngineStream(RequestStream):
    """One stream's place in a queue (see ``service.engine.interface.EngineStreamLike``)."""

    def __init__(
        self, queue: RequestQueue, priority: Priority, positions: slice, hop_s: float
    ) -> None:
        super().__init__(priority, positions)
        self.depth = queue.settings.limit(priority)
        self._queue = queue
        self._hop_s = hop_s
        queue.enter(self)

    def submit(
        self, windows: Sequence[Window], new_hops: int, shift: int = 0, unread: int = 0
    ) -> Future[Probabilities]:
        """unread: first windows, which only prepare the stream and are not answered."""
        due_s = float("inf")
        if self.priority is Priority.LIVE:
            due_s = time.monotonic() + len(windows) * new_hops * self._hop_s
        request = Request(self, list(windows), new_hops, due_s, unread, shift)
        self._queue.put(request)
        return request.future

    def close(self) -> None:
        """Pending requests are still answered."""
        self._queue.leave(self)


class SegmentedStream:
    """A recording's place in the engine (see ``service.engine.interface``)."""

    def __init__(
        self, open_stream: Callable[[], EngineStream], refill_hops: int, segments: int
    ) -> None:
        """segments: computed at once."""
        self._open = open_stream
        self._refill_hops = refill_hops
        self._stream = open_stream()
        self._submitted = 0  # windows of the segment
        self._recent: deque[tuple[Window, int]] = deque(maxlen=_MOST_REFILL)
        self.depth = min(segments, MOST_SEGMENTS) * SEGMENT_WINDOWS

    def submit(
        self, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> Future[Probabilities]:
        refill = -(-self._refill_hops // new_hops)
        before: list[tuple[Window, int]] = []
        if self._submitted >= SEGMENT_WINDOWS and refill <= _MOST_REFILL:
            self._stream.close()  # what was submitted is still answered
            self._stream, self._submitted = self._open(), 0
            before = list(self._recent)[-refill:]
        self._submitted += len(windows)
        self._recent.extend((window.copy(), shift) for window in windows[-_MOST_REFILL:])
        read_with = shift
        first: list[Window] = []  # those that are read as the wanted ones are
        for its, group in groupby(before, key=lambda one: one[1]):
            if first:
                self._stream.submit(first, new_hops, read_with, unread=len(first))
            first, read_with = [window for window, _ in group], its
        if first and read_with != shift:
            self._stream.submit(first, new_hops, read_with, unread=len(first))
            first = []
        return self._stream.submit([*first, *windows], new_hops, shift, unread=len(first))

    def close(self) -> None:
        self._stream.close()
