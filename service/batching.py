"""What streams ask of the engine, and who is served next.

Live streams come first, then files, and the two never share a batch, so that a live window waits
for one file batch at most (``max_file_batch_windows`` bounds it). Within a priority, first come,
first served, with at most one request of a stream in a batch.

Thread-safety: every method of the queue may be called from any thread; one condition guards it
and is held for as long as it takes to move a request.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Window = NDArray[np.float32]  # [WINDOW] samples
Probabilities = NDArray[np.float32]  # [windows, heads, frames, PITCHES]


class Priority(IntEnum):
    """Who is served first."""

    LIVE = 0
    FILE = 1


class EngineError(RuntimeError):
    """The model failed on a request, or could not take it."""

    code = "internal"


class EngineBusyError(EngineError):
    """The queue is full; nothing was taken."""

    code = "busy"


class EngineClosedError(EngineError):
    """The engine has been closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Bounds of the engine.

    Attributes:
        max_batch_windows: windows of live streams in one batch.
        max_file_batch_windows: windows of files in one batch; the time that it takes is what a
            live window may have to wait.
        gather_ms: how long a batch waits for windows of further live streams. Not waited where
            every open live stream has its window in already.
        max_queued_windows: windows waiting for the worker, of all streams.
    """

    max_batch_windows: int = 32
    max_file_batch_windows: int = 8
    gather_ms: float = 2.0
    max_queued_windows: int = 4096

    def __post_init__(self) -> None:
        if min(self.max_batch_windows, self.max_file_batch_windows, self.max_queued_windows) < 1:
            raise ValueError("the engine's batches and queue must hold at least one window")
        if self.gather_ms < 0:
            raise ValueError(f"gather_ms must not be negative, not {self.gather_ms}")


class RequestStream:
    """A stream that requests come from; identity is what counts."""

    def __init__(self, priority: Priority) -> None:
        self.priority = priority


StreamT = TypeVar("StreamT", bound=RequestStream)


@dataclass(slots=True)
class Request(Generic[StreamT]):
    """Windows of one stream, oldest first, and the future of their probabilities."""

    stream: StreamT
    windows: list[Window]
    new_hops: int
    future: Future[Probabilities]
    submitted_s: float = field(default_factory=time.monotonic)


class RequestQueue(Generic[StreamT]):
    """Requests that wait for the engine's worker."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._changed = threading.Condition()
        self._queues: dict[Priority, deque[Request[StreamT]]] = {p: deque() for p in Priority}
        self._windows = 0
        self._live_streams: set[StreamT] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Nothing is taken any more."""
        return self._closed

    @property
    def windows(self) -> int:
        """Windows waiting."""
        return self._windows

    def enter(self, stream: StreamT) -> None:
        """A batch will wait for this stream's windows too. Raises EngineClosedError."""
        with self._changed:
            self._refuse_if_closed()
            if stream.priority is Priority.LIVE:
                self._live_streams.add(stream)

    def leave(self, stream: StreamT) -> None:
        """Forget a stream; its requests that wait are still answered. Safe to call twice."""
        with self._changed:
            self._live_streams.discard(stream)
            self._changed.notify_all()  # a batch may be waiting for it

    def put(self, request: Request[StreamT]) -> None:
        """Raises EngineBusyError, EngineClosedError, or ValueError for a request that no batch
        can hold."""
        count, limit = len(request.windows), self._batch_limit(request.stream.priority)
        if not 1 <= count <= limit:
            raise ValueError(f"a request holds 1 to {limit} windows, not {count}")
        with self._changed:
            self._refuse_if_closed()
            if self._windows + count > self._settings.max_queued_windows:
                raise EngineBusyError(f"{self._windows} windows wait for the model already")
            self._queues[request.stream.priority].append(request)
            self._windows += count
            self._changed.notify_all()

    def next_batch(self, timeout_s: float) -> list[Request[StreamT]]:
        """The most urgent requests that fit together; none after so long without any."""
        with self._changed:
            self._changed.wait_for(self._has_work, timeout_s)
            if self._queues[Priority.LIVE]:
                self._changed.wait_for(self._complete, self._settings.gather_ms / 1000)
            for priority in Priority:
                if self._queues[priority]:
                    return self._take(priority)
            return []

    def close(self) -> list[Request[StreamT]]:
        """Take nothing more; returns what waited."""
        with self._changed:
            self._closed = True
            waiting = [request for queue in self._queues.values() for request in queue]
            for queue in self._queues.values():
                queue.clear()
            self._windows = 0
            self._changed.notify_all()
        return waiting

    def _has_work(self) -> bool:
        return self._closed or any(self._queues.values())

    def _complete(self) -> bool:
        """Nobody is left whose window could still join the live batch."""
        live = self._queues[Priority.LIVE]
        due = {request.stream for request in live}
        windows = sum(len(request.windows) for request in live)
        everybody = due >= self._live_streams
        return self._closed or everybody or windows >= self._settings.max_batch_windows

    def _take(self, priority: Priority) -> list[Request[StreamT]]:
        """Requests for one batch, in order; a stream's second one waits for the next batch."""
        limit, queue = self._batch_limit(priority), self._queues[priority]
        batch: list[Request[StreamT]] = []
        later: list[Request[StreamT]] = []
        streams: set[StreamT] = set()
        count = 0
        while queue and count + len(queue[0].windows) <= limit:
            request = queue.popleft()
            if request.stream in streams:
                later.append(request)
                continue
            batch.append(request)
            streams.add(request.stream)
            count += len(request.windows)
        queue.extendleft(reversed(later))
        self._windows -= count
        return batch

    def _batch_limit(self, priority: Priority) -> int:
        if priority is Priority.LIVE:
            return self._settings.max_batch_windows
        return self._settings.max_file_batch_windows

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")
