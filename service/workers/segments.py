"""Distributes the segments of recordings among the workers.

The first half of the network computes the windows of a stream one after the other, so a single
stream would use only one core. However, the streaming state depends only on the last
``ModelConfig.preroll_hops`` hops. Each segment therefore starts with a pre-roll: earlier windows,
whose results are dropped. All other results equal those of a single pass, bit for bit::

    windows    0 .............. 63 | 64 ............ 127 | 128 ...
    worker 1   ####################
    worker 2                ++++++++ ###################             + pre-roll
    worker 1                                     ++++++++ ########## ...
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from service.stream.windows import EngineError, PendingWindows, SegmentProbabilities
from service.workers.connection import WorkerConnection
from service.workers.messages import Segment, SegmentPart

SERVICE_STOPPED = "the service has stopped"
MAX_SEGMENTS = 2  # maximum number of segments at a worker: one is computed, and one waits


class SegmentJob:
    """A segment and the future of its probabilities. May be created in any thread."""

    def __init__(self, segment: PendingWindows) -> None:
        self.segment = segment
        self.future: Future[SegmentProbabilities] = Future()
        self.parts: SegmentProbabilities = []  # parts computed by the current worker

    def start(self) -> bool:
        """Mark the job as running, so that it can no longer be cancelled. Return False if it was
        cancelled before."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def fail(self, error: str) -> None:
        if self.start():
            self.future.set_exception(EngineError(error))


class SegmentQueue:
    """Waiting and running segments. Used only from the event loop."""

    def __init__(self, workers: Sequence[WorkerConnection]) -> None:
        """workers: the pool's list of current workers, which the pool updates."""
        self._workers = workers
        self._waiting: deque[SegmentJob] = deque()
        self._computing: dict[int, tuple[WorkerConnection, SegmentJob]] = {}  # by number
        self._numbers = itertools.count()
        self._closed = False

    def submit(self, job: SegmentJob) -> None:
        if self._closed:
            job.fail(SERVICE_STOPPED)
            return
        self._waiting.append(job)
        self.dispatch()

    def dispatch(self) -> None:
        """Send waiting segments to the workers with the fewest segments."""
        while self._waiting:
            ready = [worker for worker in self._workers if worker.is_ready]
            worker = min(ready, key=self._count, default=None)
            if worker is None or self._count(worker) == MAX_SEGMENTS:
                return
            job = self._waiting.popleft()
            if job.start():
                number = next(self._numbers)
                self._computing[number] = worker, job
                worker.send(Segment(number, job.segment))

    def _count(self, worker: WorkerConnection) -> int:
        return sum(other is worker for other, _ in self._computing.values())

    def on_part(self, part: SegmentPart) -> None:
        _, job = self._computing[part.number]
        if part.probabilities is not None:
            job.parts.append(part.probabilities)
        if part.is_last:
            del self._computing[part.number]
            if part.error:
                job.fail(part.error)
            else:
                job.future.set_result(job.parts)
            self.dispatch()

    def on_worker_exit(self, worker: WorkerConnection) -> None:
        """Queue the worker's running segments again, before all waiting segments."""
        lost = [number for number, (other, _) in self._computing.items() if other is worker]
        for number in reversed(lost):
            _, job = self._computing.pop(number)
            job.parts = []
            self._waiting.appendleft(job)
        self.dispatch()

    def close(self) -> None:
        """Fail all waiting, running and later segments with EngineError."""
        self._closed = True
        for job in [*self._waiting, *(job for _, job in self._computing.values())]:
            job.fail(SERVICE_STOPPED)
        self._waiting.clear()
        self._computing.clear()
