"""Requests of streams to the engine, and the order in which they are served.

Live streams come before files and never share a batch with them. Within a priority, the request
with the earliest deadline goes first: a live request is due when the stream's next window will be,
files take turns. A request may be served in parts, so that a live window waits for at most one
batch of a file's windows, however many that file has requested. Where there are several workers,
one of them computes no files while there are live streams. All windows of a batch are read at the
same positions, and a stream's windows are processed in order: while one worker has a stream's
front-end, the others leave that stream alone.

The queue needs no limit: a live stream waits for its request before the next, a recording has two
requests or ``depth`` windows unanswered, and the service limits how many of both there are.

Thread-safety: every method may be called from any thread; one lock guards the queue and is held
only while a request is moved.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import insort
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from model.ranges import Count, FromZero, NotNegative, Positive, checked
from model.transcriber import FeatureStream

Window = NDArray[np.float32]  # [WINDOW] samples
Probabilities = NDArray[np.float32]  # [windows, heads, positions, PITCHES]


class Priority(IntEnum):
    """Who is served first."""

    LIVE = 0
    FILE = 1


class EngineError(RuntimeError):
    """The model failed on a request, or could not accept it."""


class EngineClosedError(EngineError):
    """The engine has been closed."""


@checked(slots=True, kw_only=True)
class EngineSettings:
    """Limits of the engine.

    Attributes:
        max_batch_windows: windows of live streams in one request or batch.
        max_file_batch_windows: windows of files in one request or batch.
        max_step_ms: longest duration of a batch, as estimated at warm-up, and so the longest wait
            of a live window. A batch always has at least one window.
        gather_ms: how long a batch waits for windows of other live streams, where large batches
            pay off; no wait if every open live stream has already submitted its window.
        worker_processes: at most so many workers of a CPU, if several, compute in processes of
            their own (Linux); 0: all in threads.
    """

    max_batch_windows: Count = 32
    max_file_batch_windows: Count = 8
    max_step_ms: Positive = 25.0
    gather_ms: NotNegative = 2.0
    worker_processes: FromZero = 0

    def limit(self, priority: Priority) -> int:
        """Windows in one request of this priority."""
        return self.max_batch_windows if priority is Priority.LIVE else self.max_file_batch_windows


class RequestStream:
    """A source of requests; compared by identity."""

    _numbers = count()

    def __init__(self, priority: Priority, positions: slice) -> None:
        self.number = next(self._numbers)
        self.worker: int | None = None  # the only one that may compute it; None: any
        self.load = 0.0  # windows that it asks for per hop, once it has a worker
        self.priority = priority
        self.positions = positions
        self.due_s = -math.inf  # of its latest request
        self.features: FeatureStream | None = None  # used by workers; None: to be opened


class Request:
    """Windows of one stream, oldest first, and the future of their probabilities."""

    def __init__(
        self,
        stream: RequestStream,
        windows: list[Window],
        new_hops: int,
        due_s: float = math.inf,
        unread: int = 0,
        shift: int = 0,
    ) -> None:
        """due_s: by the monotonic clock; later than that of the stream's earlier requests.
        unread: first windows, which only prepare the stream and are not answered."""
        self.stream = stream
        self.windows = windows
        self.new_hops = new_hops
        self.due_s = due_s
        self.unread = unread
        self.shift = shift
        self.submitted_s = time.monotonic()
        self.future: Future[Probabilities] = Future()
        self.taken = 0  # windows handed out, by the queue
        self._lock = threading.Lock()
        self._begun = False
        self._settled = False
        self._answers: dict[int, Probabilities] = {}  # by first window

    def begin(self) -> bool:
        """Call before each part; returns False if nobody waits for the answer any longer."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self._settled = not self.future.set_running_or_notify_cancel()
            return not self._settled

    def answer(self, first: int, part: Probabilities) -> None:
        """Add the probabilities of the windows from ``first`` on; the last resolves."""
        with self._lock:
            self._answers[first] = part
            answered = self.unread + sum(len(one) for one in self._answers.values())
            missing = len(self.windows) - answered
            if missing or self._settled:
                return
            self._settled = True
        parts = [self._answers[first] for first in sorted(self._answers)]
        self.future.set_result(np.concatenate(parts) if len(parts) > 1 else parts[0])

    def fail(self, error: EngineError) -> None:
        """Fail the future; later parts are dropped."""
        if not self.begin():
            return
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Part:
    """Some windows of a request, in one batch."""

    request: Request
    first: int
    stop: int

    @property
    def windows(self) -> list[Window]:
        """Oldest first."""
        return self.request.windows[self.first : self.stop]

    @property
    def unread(self) -> int:
        """How many of them, the first, are not answered."""
        return min(len(self), max(0, self.request.unread - self.first))

    def __len__(self) -> int:
        return self.stop - self.first


class RequestQueue:
    """Requests waiting for the engine's workers."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._limits = {priority: settings.limit(priority) for priority in Priority}
        self._gather_s = settings.gather_ms / 1000
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        self._make_waiter = partial(threading.Condition, lock)
        # The idle workers and what they wait for, the latest last.
        self._idle: list[tuple[int, threading.Condition]] = []
        # (due, number, request), the most urgent first
        self._queues: dict[Priority, list[tuple[float, int, Request]]] = {p: [] for p in Priority}
        self._number = 0
        self._live_streams: set[RequestStream] = set()
        self._held: set[RequestStream] = set()  # streams whose front-end a worker is using
        self._file_workers = 1  # that may compute files while there are live streams
        self._pinned_to = 0  # workers that share the streams; 0: any worker computes any stream
        self._filing: set[int] = set()  # workers that compute files
        self._down: set[int] = set()  # workers that take no new streams
        self.closed = False  # accepts no more requests

    def bound(self, batch_windows: int, gather_s: float, workers: int = 1) -> None:
        """Set the maximum batch size, the gathering time and the number of workers from now on."""
        with self._changed:
            self._file_workers = max(1, workers - 1)
            for priority in Priority:
                self._limits[priority] = min(self.settings.limit(priority), max(1, batch_windows))
            self._gather_s = gather_s

    def pin(self, workers: int) -> None:
        """From now on a stream is computed by one of so many workers, always the same."""
        with self._changed:
            self._pinned_to = workers

    def rest(self, worker: int, down: bool) -> None:
        """Whether a worker takes no streams but those that it has."""
        if down == (worker in self._down):
            return
        with self._changed:
            self._down ^= {worker}
            self._wake()

    def enter(self, stream: RequestStream) -> None:
        """A batch will wait for this stream's windows too. Raises EngineClosedError."""
        with self._changed:
            self._refuse_if_closed()
            if stream.priority is Priority.LIVE:
                self._live_streams.add(stream)

    def leave(self, stream: RequestStream) -> None:
        """Forget a stream; its pending requests are still answered. Idempotent."""
        with self._changed:
            self._live_streams.discard(stream)
            self._wake()  # a batch may be waiting for it

    def put(self, request: Request) -> None:
        """Raises EngineClosedError, or ValueError for a request that is too large or empty."""
        stream, read = request.stream, len(request.windows) - request.unread
        limit = self.settings.limit(stream.priority)
        if not (0 if request.unread else 1) <= read <= limit:
            raise ValueError(f"a request holds 1 to {limit} windows, not {read}")
        with self._changed:
            self._refuse_if_closed()
            if self._pinned_to and stream.priority is Priority.LIVE and stream.worker is None:
                self._assign(stream, 1 / request.new_hops)
            stream.due_s = max(stream.due_s, request.due_s)  # never before earlier ones
            self._number += 1
            insort(self._queues[stream.priority], (stream.due_s, self._number, request))
            self._wake()

    def next_batch(self, timeout_s: float, worker: int = 0) -> list[Part]:
        """The worker's most urgent windows; empty if there are none within ``timeout_s``.

        The streams of the batch are held until ``release``. A worker calls this when it has
        finished its last batch.
        """
        with self._changed:
            if worker in self._filing:
                self._filing.discard(worker)
                self._wake()
            self._wait_for_work(timeout_s, worker)
            if self._gather_s and self._free(Priority.LIVE, worker):
                self._changed.wait_for(self._complete, self._gather_s)
            for priority in Priority:
                if self._free(priority, worker):
                    batch = self._take(priority, worker)
                    self._wake()  # there may be work for another
                    return batch
            return []

    def release(self, stream: RequestStream) -> None:
        """Allow the stream's next windows to be taken: the front-end has finished these."""
        with self._changed:
            self._held.discard(stream)
            self._wake()

    def close(self) -> list[Request]:
        """Accept no more; return the requests still waiting, in whole or in part."""
        with self._changed:
            self.closed = True
            waiting = [request for queue in self._queues.values() for _, _, request in queue]
            for queue in self._queues.values():
                queue.clear()
            while self._idle:
                self._wake()
        return waiting

    def _assign(self, stream: RequestStream, load: float) -> None:
        """Give a live stream to the worker whose streams ask for the fewest windows; one that is
        down only if all are."""
        loads = [0.0] * self._pinned_to
        for one in self._live_streams:
            if one.worker is not None:
                loads[one.worker] += one.load
        stream.worker = min(range(len(loads)), key=lambda one: (one in self._down, loads[one]))
        stream.load = load

    def _wait_for_work(self, timeout_s: float, worker: int) -> None:
        until_s = time.monotonic() + timeout_s
        while not self._has_work(worker):
            waiter = self._make_waiter()
            self._idle.append((worker, waiter))
            if not waiter.wait(until_s - time.monotonic()):
                if (worker, waiter) in self._idle:
                    self._idle.remove((worker, waiter))
                return

    def _wake(self) -> None:
        """After a change: wakes the worker that gathers a batch and, if there is work, an idle one:
        the one that worked last, since its core's caches still hold the network."""
        self._changed.notify_all()
        for place in reversed(range(len(self._idle))):
            if self._has_work(self._idle[place][0]):
                self._idle.pop(place)[1].notify()
                return

    def _free(self, priority: Priority, worker: int) -> bool:
        """Whether the worker can serve any request of this priority."""
        if not self._queues[priority]:  # as usual: asked several times for each window
            return False
        servable: Iterable[RequestStream] = (
            request.stream
            for _, _, request in self._queues[priority]
            if request.stream not in self._held
        )
        if priority is Priority.FILE and self._live_streams:
            # The oldest first, so that a recording that stays with a worker gets its turn.
            servable = islice(servable, max(0, self._file_workers - len(self._filing)))
        return any(self._takes(worker, stream) for stream in servable)

    def _takes(self, worker: int, stream: RequestStream) -> bool:
        if stream.worker is None:
            return worker not in self._down or len(self._down) == self._pinned_to
        return stream.worker == worker

    def _has_work(self, worker: int) -> bool:
        return self.closed or any(self._free(priority, worker) for priority in Priority)

    def _complete(self) -> bool:
        """Whether the live batch is full or no stream is left that could join it."""
        live = [request for _, _, request in self._queues[Priority.LIVE]]
        due = {request.stream for request in live} | self._held
        windows = sum(len(request.windows) - request.taken for request in live)
        everybody = due >= self._live_streams
        return self.closed or everybody or windows >= self._limits[Priority.LIVE]

    def _take(self, priority: Priority, worker: int) -> list[Part]:
        """Windows for one batch; a stream's second request waits for the next."""
        room, queue = self._limits[priority], self._queues[priority]
        if self._pinned_to and priority is Priority.FILE and self._live_streams:
            room = 1  # no other worker may take the live window that becomes due meanwhile
        if priority is Priority.FILE:
            self._filing.add(worker)
        batch: list[Part] = []
        for _, _, request in queue:
            stream = request.stream
            if stream in self._held or not self._takes(worker, stream):
                continue
            if batch and stream.positions != batch[0].request.stream.positions:
                continue
            if self._pinned_to and stream.worker is None:
                if batch:
                    continue  # another worker may be free for it
                stream.worker = worker
            stop = min(len(request.windows), request.taken + room)
            batch.append(Part(request, request.taken, stop))
            room -= stop - request.taken
            request.taken = stop
            self._held.add(stream)
            if not room:
                break
        queue[:] = [one for one in queue if one[2].taken < len(one[2].windows)]
        return batch

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise EngineClosedError("the engine is closed")
