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

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from service.stream.windows import EngineError, PendingWindows, Probabilities
from service.workers.connection import WorkerConnection
from service.workers.messages import SLOTS, Segment, SegmentResult

SERVICE_STOPPED = "the service has stopped"
_NO_SAMPLES = np.zeros(0, np.float32)  # replaces the samples that are in shared memory


class SegmentJob:
    """A segment and the future of its probabilities. May be created in any thread."""

    def __init__(self, segment: PendingWindows) -> None:
        self.segment = segment
        self.future: Future[Probabilities] = Future()

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
        self._computing: dict[tuple[WorkerConnection, int], SegmentJob] = {}  # by slot
        self._closed = False

    def submit(self, job: SegmentJob) -> None:
        if self._closed:
            job.fail(SERVICE_STOPPED)
            return
        self._waiting.append(job)
        self.dispatch()

    def dispatch(self) -> None:
        """Send waiting segments to the workers with the most free slots."""
        while self._waiting:
            ready = [worker for worker in self._workers if worker.is_ready]
            free_slots = max(map(self._free_slots, ready), key=len, default=[])
            if not free_slots:
                return
            job = self._waiting.popleft()
            if not job.start():
                continue
            worker, slot = free_slots[0]
            self._computing[worker, slot] = job
            samples = job.segment.samples
            worker.samples[slot, : len(samples)] = samples
            due = replace(job.segment, samples=_NO_SAMPLES)
            worker.send(Segment(slot, len(samples), due))

    def _free_slots(self, worker: WorkerConnection) -> list[tuple[WorkerConnection, int]]:
        slots = [(worker, slot) for slot in range(SLOTS)]
        return [slot for slot in slots if slot not in self._computing]

    def on_result(self, worker: WorkerConnection, result: SegmentResult) -> None:
        job = self._computing.pop((worker, result.slot))
        if result.error is not None:
            job.fail(result.error)
        else:
            # Copy the result, because the slot may be reused before the caller reads it.
            values = worker.probabilities[result.slot, : math.prod(result.shape)].copy()
            job.future.set_result(values.reshape(result.shape))
        self.dispatch()

    def on_worker_exit(self, worker: WorkerConnection) -> None:
        """Queue the worker's running segments again, before all waiting segments."""
        lost = [key for key in self._computing if key[0] is worker]
        self._waiting.extendleft([self._computing.pop(key) for key in reversed(lost)])
        self.dispatch()

    def close(self) -> None:
        """Fail all waiting, running and later segments with EngineError."""
        self._closed = True
        for job in [*self._waiting, *self._computing.values()]:
            job.fail(SERVICE_STOPPED)
        self._waiting.clear()
        self._computing.clear()
