"""Starts and replaces the workers, and distributes live sessions and segments among them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from model.config import ModelConfig
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.windows import EngineError, PendingWindows, SegmentProbabilities
from service.workers.connection import MIN_MISSED_PINGS, PROCESSES, SessionProxy, WorkerConnection
from service.workers.messages import (
    BatchTiming,
    ModelLoaded,
    OpenSession,
    Result,
    SegmentPart,
    WorkerConfig,
)
from service.workers.segments import SERVICE_STOPPED, SegmentJob, SegmentQueue

logger = logging.getLogger(__name__)

MAX_WORKERS = 8
CORES_PER_GPU_WORKER = 4
"""Number of cores for each worker that uses a GPU. One worker can resample and track 125 to 200
streams, and a GPU can compute several times as many. Each worker that uses a GPU needs 2 to 3 GB of
memory."""
MAX_PING_INTERVAL_S = 2.0
# Device files of the GPUs that PyTorch calls "cuda": NVIDIA's driver, WSL, and AMD's driver.
GPU_DEVICES = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0  # limits of the pause after a worker has failed to start


class Observer(Protocol):
    """Receives timings and exits of workers. The methods must be fast and must not raise."""

    def on_batch(self, timing: BatchTiming) -> None: ...
    def on_worker_exit(self) -> None: ...


class WorkerPool:
    """Workers, each with a copy of the model; also an ``InferenceEngine`` for recordings.

    Use a pool only in the event loop of ``start``, except ``submit``, which is thread-safe.
    ``start`` sets the model's ``config`` and ``card``, ``device``, ``workers`` (the number of
    workers) and ``window_s`` (the time in s that one window took in the warm-up).
    """

    def __init__(
        self,
        setup: WorkerConfig,
        cores: int,
        workers: int | None = None,
        hang_timeout_s: float = 60.0,
        processes: bool = PROCESSES,
    ) -> None:
        """Create a pool without workers; ``start`` starts them.

        Args:
            workers: number of workers. None means one per core, or with a GPU one per
                CORES_PER_GPU_WORKER cores, and at most MAX_WORKERS.
            hang_timeout_s: time without a reply to a heartbeat after which a worker is replaced.
            processes: False to use only one worker, in a thread.
        """
        self._setup, self._cores, self._requested_workers = setup, cores, workers
        self._hang_timeout_s, self._processes = hang_timeout_s, processes
        self.observer: Observer | None = None
        self._workers: list[WorkerConnection] = []
        self._numbers = itertools.count(1)
        self._segments = SegmentQueue(self._workers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._exits: set[asyncio.Task[None]] = set()  # wait for workers to exit
        self._running = False  # True between `start` and `close`
        self.device = setup.device

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all workers and wait until they are ready. Raises EngineError if one fails."""
        self._loop = asyncio.get_running_loop()
        device = self._setup.device
        has_gpu = any(path.exists() for path in GPU_DEVICES)
        on_gpu = device.startswith("cuda") or (device == "auto" and has_gpu)
        count = self._count(on_gpu)
        own_process = self._processes and (count > 1 or on_gpu)
        if not own_process:
            count = 1
        # With a GPU, start one worker first, because it may find that only the CPU is usable.
        loaded = await self._launch_all(1 if on_gpu else count, own_process)
        self.config: ModelConfig = loaded.config
        self.card: Mapping[str, Any] = loaded.card
        self.window_s = loaded.window_s
        self.device = loaded.device
        self.workers = self._count(loaded.device.startswith("cuda")) if own_process else 1
        if (missing := self.workers - len(self._workers)) > 0:
            await self._launch_all(missing, own_process)
        self._running = True
        self._spawn(self._send_heartbeats())
        for worker in [worker for worker in self._workers if not worker.is_ready]:
            self._on_exit(worker)  # the worker exited while others were loading
        logger.info("workers: %d on %s, %s", len(self._workers), self.device, self.config.name)

    def _count(self, on_gpu: bool) -> int:
        cores_per_worker = CORES_PER_GPU_WORKER if on_gpu else 1
        default = max(1, min(self._cores // cores_per_worker, MAX_WORKERS))
        return self._requested_workers or default

    async def _launch_all(self, count: int, own_process: bool) -> ModelLoaded:
        """Start workers. If one fails, stop all workers and raise its error."""
        try:
            return (await asyncio.gather(*(self._launch(own_process) for _ in range(count))))[0]
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop all workers and fail their sessions and segments. Idempotent."""
        self._running = False
        for task in self._tasks:
            task.cancel()
        for worker in list(self._workers):
            self._remove(worker)
        await asyncio.gather(*self._tasks, *self._exits, return_exceptions=True)
        self._segments.close()

    @property
    def is_ready(self) -> bool:
        return any(worker.is_ready for worker in self._workers)

    @property
    def is_unresponsive(self) -> bool:
        """True if a worker is unresponsive. The pool soon replaces a process, but not a thread."""
        return any(worker.is_unresponsive for worker in self._workers)

    # -- live sessions and recordings -------------------------------------------------------------

    def open_session(self, opening: OpenSession) -> SessionProxy:
        """Open a session on the least loaded worker. Raises ProtocolError if none is ready."""
        ready = [worker for worker in self._workers if worker.is_ready]
        if not ready:
            raise ProtocolError(ErrorCode.NOT_READY, "no worker is running: retry later")
        worker = min(ready, key=lambda worker: (worker.is_late, worker.windows_per_s))
        return SessionProxy(replace(opening, stream=next(self._numbers)), self.config, worker)

    def submit(self, segment: PendingWindows) -> Future[SegmentProbabilities]:
        job = SegmentJob(segment)
        try:
            self._loop.call_soon_threadsafe(self._segments.submit, job)
        except RuntimeError:  # the loop is closed
            job.fail(SERVICE_STOPPED)
        return job.future

    # -- workers ----------------------------------------------------------------------------------

    async def _launch(self, own_process: bool) -> ModelLoaded:
        """Start a worker. If it fails, remove it and raise EngineError or OSError."""
        worker = WorkerConnection(own_process, self._on_result, self._on_exit)
        self._workers.append(worker)
        try:
            return await worker.start(self._setup)
        except (EngineError, OSError):
            self._remove(worker)
            raise

    def _on_result(self, worker: WorkerConnection, result: Result) -> None:
        if isinstance(result, SegmentPart):
            self._segments.on_part(result)
        elif self.observer is not None:
            self.observer.on_batch(result)

    def _on_exit(self, worker: WorkerConnection) -> None:
        """Queue the worker's segments again, and start another worker."""
        if worker not in self._workers or not self._running:
            return
        self._workers.remove(worker)
        logger.error("a worker exited: starting another")
        if self.observer is not None:
            self.observer.on_worker_exit()
        self._segments.on_worker_exit(worker)
        self._spawn(self._replace(worker, self._wait_closed(worker)))

    def _wait_closed(self, worker: WorkerConnection) -> asyncio.Task[None]:
        """Return a task that waits for the worker's exit, and that ``close`` awaits."""
        task = asyncio.create_task(worker.wait_closed())
        self._exits.add(task)
        task.add_done_callback(self._exits.discard)
        return task

    async def _replace(self, worker: WorkerConnection, closed: asyncio.Task[None]) -> None:
        """Start another worker once ``closed`` is done. Retry after pauses of increasing length."""
        await asyncio.shield(closed)
        pause_s = MIN_PAUSE_S
        while True:
            try:
                await self._launch(worker.own_process)
                break
            except (EngineError, OSError) as error:
                logger.error("cannot start a worker: %s; retrying in %.0f s", error, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        self._segments.dispatch()

    def _remove(self, worker: WorkerConnection) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            worker.kill()
            self._wait_closed(worker)

    async def _send_heartbeats(self) -> None:
        interval_s = min(self._hang_timeout_s / MIN_MISSED_PINGS, MAX_PING_INTERVAL_S)
        max_missed = round(self._hang_timeout_s / interval_s)
        while True:
            await asyncio.sleep(interval_s)
            for worker in list(self._workers):
                worker.send_heartbeat(max_missed)
                if worker.is_unresponsive and worker.own_process:
                    logger.error("a worker is unresponsive: killing it")
                    worker.kill()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class BackgroundPool:
    """Runs a pool in the event loop of a separate thread, for programs without an event loop."""

    def __init__(self, pool: WorkerPool) -> None:
        """Start the pool and wait until it is ready. Raises EngineError if a worker fails."""
        self.pool = pool
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="workers", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(pool.start(), self._loop).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the workers. Idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self.pool.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
