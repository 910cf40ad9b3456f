"""Starts the workers, replaces them when they exit, and distributes the segments of recordings."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any
from weakref import WeakSet

from model.config import ModelConfig
from service.engine.load import WorkerConfig, may_use_gpu, worker_count
from service.engine.segment_memory import SLOTS
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.windows import (
    BatchTiming,
    EngineError,
    PendingWindows,
    Probabilities,
    WorkersExitedError,
)
from service.workers.client import WorkerClient
from service.workers.worker import ModelLoaded

logger = logging.getLogger(__name__)

PROCESSES = os.name == "posix"  # True if workers can be processes, which inherit files
# Limits of the pause before a worker is replaced again. The pause doubles each time. There is none
# after a worker that lasted for more than the maximum.
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
MAX_ATTEMPTS = 4  # number of exits of workers after which a segment fails, as it may cause them
SERVICE_STOPPED = "the service has stopped"


class WorkerPool:
    """Workers, each with a copy of the model; also an ``InferenceEngine`` for recordings.

    Use a pool only in the event loop of ``start``, except ``submit``, which is thread-safe.
    ``start`` sets the model's ``config`` and ``card``, the ``device``, the number of ``workers``,
    and ``window_s``: the time in s per window of a full batch in the warm-up.
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
            workers: number of workers. None means the result of ``worker_count``.
            hang_timeout_s: time without a reply to a heartbeat after which a process is replaced.
            processes: False to use only one worker, in a thread.
        """
        self._setup, self._cores, self._requested_workers = setup, cores, workers
        self._hang_timeout_s, self._processes = hang_timeout_s, processes
        # Callbacks must be fast and must not raise.
        self.on_batch: Callable[[BatchTiming], None] = lambda timing: None
        self.on_worker_exit: Callable[[], None] = lambda: None
        self._workers: list[WorkerClient] = []
        self._tasks: list[asyncio.Task[None]] = []  # one for each worker
        self._unfinished: WeakSet[asyncio.Task[Any] | None] = WeakSet()  # ``close`` waits for them
        self._is_closed = False
        self._changed = asyncio.Event()  # set when waiting segments must look for a worker again
        self.device = setup.device

    async def start(self) -> None:
        """Start all workers and wait until they are ready. Raises EngineError or OSError."""
        self._loop = asyncio.get_running_loop()
        on_gpu = may_use_gpu(self.device)
        count = self._requested_workers or worker_count(self._cores, on_gpu)
        own_process = self._processes and (count > 1 or on_gpu)
        # With a GPU, start one worker first, because it may find that only the CPU is usable.
        loaded = await self._launch(count if own_process and not on_gpu else 1, own_process)
        self.config: ModelConfig = loaded.config
        self.card: Mapping[str, Any] = loaded.card
        self.window_s, self.device = loaded.window_s, loaded.device
        if own_process and on_gpu:
            uses_gpu = loaded.device.startswith("cuda")
            count = self._requested_workers or worker_count(self._cores, uses_gpu)
            if count > 1:
                await self._launch(count - 1, own_process)
        self.workers = len(self._tasks)
        logger.info("workers: %d on %s, %s", self.workers, self.device, self.config.name)

    async def _launch(self, count: int, own_process: bool) -> ModelLoaded:
        """Start workers. If one fails, stop all workers and raise its error."""
        loaded = [self._loop.create_future() for _ in range(count)]
        self._tasks += [asyncio.create_task(self._run(own_process, first)) for first in loaded]
        try:
            return (await asyncio.gather(*loaded))[0]
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop all workers and fail their sessions and segments. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._changed.set()
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, *self._unfinished, return_exceptions=True)

    def running_workers(self) -> int:
        return sum(worker.is_ready for worker in self._workers)

    @property
    def is_ready(self) -> bool:
        return self.running_workers() > 0

    @property
    def is_unresponsive(self) -> bool:
        """True if a worker is unresponsive. The pool soon replaces a process, but not a thread."""
        return any(worker.is_unresponsive for worker in self._workers)

    def least_loaded(self) -> WorkerClient:
        """Return the worker for the next live session. Raises ProtocolError if none is ready."""
        ready = [worker for worker in self._workers if worker.is_ready]
        if not ready:
            raise ProtocolError(ErrorCode.NOT_READY, "no worker is running: retry later")
        return min(ready, key=lambda worker: worker.load)

    def submit(self, segment: PendingWindows) -> Future[Probabilities]:
        if self._is_closed:  # the loop may stop soon, and would then never run the segment
            raise EngineError(SERVICE_STOPPED)
        return asyncio.run_coroutine_threadsafe(self._compute(segment), self._loop)

    async def _compute(self, due: PendingWindows) -> Probabilities:
        """Compute a segment at the worker with the fewest segments. Repeat it if a worker exits."""
        self._unfinished.add(asyncio.current_task())
        workers = self._workers
        for _ in range(MAX_ATTEMPTS):
            while not (free := [w for w in workers if w.is_ready and len(w.segments) < SLOTS]):
                if self._is_closed:
                    raise EngineError(SERVICE_STOPPED)
                self._changed.clear()
                await self._changed.wait()
            computing = min(free, key=lambda worker: len(worker.segments)).compute(due)
            computing.add_done_callback(lambda _: self._changed.set())
            # A worker also completes a segment that the caller has cancelled.
            if (result := await asyncio.shield(computing)) is not None:
                return result
        message = f"{MAX_ATTEMPTS} workers exited while they computed a part of this recording"
        raise WorkersExitedError(message)

    async def _run(self, own_process: bool, loaded: asyncio.Future[ModelLoaded]) -> None:
        """Run a worker, and start another one when it exits or fails to start. Pause between
        workers that do not last. If the first start fails, set the exception of ``loaded``."""
        pause_s = 0.0
        while not self._is_closed:
            started_s = monotonic()
            try:
                await self._run_once(own_process, loaded)
            except Exception as error:
                if not loaded.done():
                    loaded.set_exception(error)
                    return
                logger.error("cannot start a worker: %s", error)
            self.on_worker_exit()
            if monotonic() - started_s > MAX_PAUSE_S:
                pause_s = 0.0
            logger.info("starting a worker in %.0f s", pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(max(MIN_PAUSE_S, 2 * pause_s), MAX_PAUSE_S)

    async def _run_once(self, own_process: bool, loaded: asyncio.Future[ModelLoaded]) -> None:
        """Run a worker until it exits. Raises EngineError or OSError if it does not start."""
        worker = WorkerClient(own_process)
        self._workers.append(worker)
        heartbeats = asyncio.create_task(worker.send_heartbeats(self._hang_timeout_s))
        try:
            reply = await worker.start(self._setup)
            if not loaded.done():
                loaded.set_result(reply)
            self._changed.set()
            await self._handle_replies(worker)
        finally:
            heartbeats.cancel()
            self._workers.remove(worker)
            self._unfinished.add(stopping := asyncio.create_task(worker.stop()))
            await asyncio.shield(stopping)

    async def _handle_replies(self, worker: WorkerClient) -> None:
        """Handle a worker's replies until it exits, or until one cannot be handled."""
        try:
            while True:
                for reply in await worker.receive():
                    if isinstance(reply, BatchTiming):
                        self.on_batch(reply)
                    else:
                        worker.handle(reply)
        except (asyncio.IncompleteReadError, OSError):
            logger.error("a worker exited")
        except Exception:
            logger.exception("cannot handle a worker's reply")
