"""The service's side of the workers: starts, replaces and calls them.

Threads would contend for the GIL, which each of the hundreds of operations of a window releases.
Workers are therefore processes on multi-core CPUs and on GPUs. A worker exits when its socket is
closed, so it never outlives the service.
"""

import asyncio
import itertools
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Thread
from time import monotonic
from typing import Any, Protocol
from weakref import WeakSet

from model.config import ModelConfig
from service.engine.load import WorkerConfig, may_use_gpu, worker_count
from service.engine.segment_memory import SLOTS, SegmentMemory, create_file
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.session import OpenSession, SessionOutput
from service.stream.windows import (
    BatchTiming,
    EngineError,
    PendingWindows,
    Probabilities,
    WorkersExitedError,
)
from service.workers.worker import CloseSession, ModelLoaded, Ping, Segment, SegmentResult, run

logger = logging.getLogger(__name__)

PROCESSES = os.name == "posix"  # True if workers can be processes, which inherit files
MAX_LOAD_S = 180.0  # maximum time for loading the model, also allowed by docker/kubernetes.yaml
# Limits of the pause before a worker is replaced again. The pause doubles each time. There is none
# after a worker that lasted for more than the maximum.
MIN_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
MAX_ATTEMPTS = 4  # number of exits of workers after which a segment fails, as it may cause them
MIN_MISSED_PINGS = 8  # minimum number of missed heartbeats before a worker is unresponsive
MAX_PING_INTERVAL_S = 2.0
SERVICE_STOPPED = "the service has stopped"
WORKER_EXITED = "the session's worker stopped: resume from the latest checkpoint"
_MAX_EXIT_POLLS = 500  # number of polls, 10 ms apart, for the exit of a killed worker
# Terminals and service managers also send SIGINT and SIGTERM to the workers, which ignore them.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""


class Session(Protocol):
    """The service's side of a live session (``service.live.session.SessionProxy``)."""

    windows_per_s: float

    def receive(self, output: SessionOutput) -> None: ...
    def fail(self, error: Exception) -> None: ...


class WorkerClient:
    """A worker's process or thread, with its connection. Used only from the event loop."""

    is_ready = False  # True from the end of ``start`` until the worker exits

    def __init__(self, own_process: bool) -> None:
        self.own_process = own_process
        self.sessions: dict[int, Session] = {}  # by number
        self.segments: dict[int, tuple[PendingWindows, asyncio.Future[Any]]] = {}  # by slot
        self._numbers = itertools.count(1)
        self._missed_pings, self._max_missed_pings = 0, MIN_MISSED_PINGS
        self._socket, other = socket.socketpair()
        self._file = create_file()
        memory = self._file.fileno()
        if own_process:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, str(other.fileno()), str(memory)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno(), memory],
            )
            other.close()
            self._kill, self._has_exited = process.kill, lambda: process.poll() is not None
        else:
            service = Connection(other.detach())
            thread = Thread(target=run, args=[service, os.dup(memory)], name="worker", daemon=True)
            thread.start()
            # A thread exits by itself once its socket is closed.
            self._kill, self._has_exited = lambda: None, lambda: not thread.is_alive()

    async def start(self, config: WorkerConfig) -> ModelLoaded:
        """Wait until the worker has loaded the model. Raises EngineError if that fails."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self.send(config)
        try:
            async with asyncio.timeout(MAX_LOAD_S):
                reply: ModelLoaded | EngineError = await self.receive()
        except (asyncio.IncompleteReadError, OSError) as error:  # OSError includes TimeoutError
            raise EngineError("worker exited, or did not load the model in time") from error
        if isinstance(reply, EngineError):
            raise reply
        self._memory = SegmentMemory(self._file.fileno(), reply.config)
        self.is_ready = True
        return reply

    async def stop(self) -> None:
        """Kill the worker, fail its sessions, return None for its segments, and await its exit."""
        self.kill()
        self._file.close()
        for session in self.sessions.values():
            session.fail(ProtocolError(ErrorCode.INTERNAL, WORKER_EXITED))
        for _, future in self.segments.values():
            future.set_result(None)
        # Poll, because an interpreter that is exiting cannot start a thread for the wait.
        for _ in range(_MAX_EXIT_POLLS):
            if self._has_exited():
                break
            await asyncio.sleep(0.01)

    def kill(self) -> None:
        self.is_ready = False
        self._kill()
        if hasattr(self, "_writer"):
            self._writer.transport.abort()
        else:
            self._socket.close()

    @property
    def is_unresponsive(self) -> bool:
        return self._missed_pings >= self._max_missed_pings

    @property
    def load(self) -> tuple[bool, float]:
        """True if the worker misses heartbeats, and the windows per second of its sessions."""
        return self._missed_pings > 1, sum(s.windows_per_s for s in self.sessions.values())

    def open(self, session: Session, opening: OpenSession) -> int:
        """Open a session and return its number."""
        number = next(self._numbers)
        self.sessions[number] = session
        self.send(replace(opening, number=number))
        return number

    def close(self, number: int) -> None:
        """Discard a session, also in the worker. Idempotent."""
        if self.sessions.pop(number, None) is not None:
            self.send(CloseSession(number))

    def compute(self, due: PendingWindows) -> asyncio.Future[Probabilities | None]:
        """Return a future of a segment. Its result is None if the worker exits."""
        slot = min(set(range(SLOTS)) - self.segments.keys())
        future = asyncio.get_running_loop().create_future()
        self.segments[slot] = due, future
        self.send(Segment(slot, due))
        return future

    def send(self, message: object) -> None:
        """Send a message, framed as by ``Connection``, unless the worker has exited."""
        if not self._writer.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def receive(self) -> Any:
        """Receive a message. Raises IncompleteReadError or OSError if the worker has exited."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return pickle.loads(await self._reader.readexactly(size))

    def handle(self, reply: object) -> None:
        match reply:
            case SessionOutput():
                if (session := self.sessions.get(reply.number)) is not None:
                    session.receive(reply)
            case SegmentResult(slot, error):
                due, future = self.segments[slot]
                if error is not None:
                    future.set_exception(error)
                else:  # copy, because the next segment may use the slot
                    future.set_result(self._memory.probabilities(slot, due).copy())
                del self.segments[slot]
            case Ping():
                self._missed_pings = 0

    async def send_heartbeats(self, hang_timeout_s: float) -> None:
        """Ping the worker regularly, unless a reply is pending. Kill an unresponsive process."""
        interval_s = min(hang_timeout_s / MIN_MISSED_PINGS, MAX_PING_INTERVAL_S)
        self._max_missed_pings = round(hang_timeout_s / interval_s)
        while True:
            await asyncio.sleep(interval_s)
            if self.is_ready and not self._missed_pings:
                self.send(Ping())
            self._missed_pings += self.is_ready
            if self.is_unresponsive and self.own_process:
                logger.error("a worker is unresponsive: killing it")
                self.kill()


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

    @property
    def is_ready(self) -> bool:
        return any(worker.is_ready for worker in self._workers)

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
        self.on_worker_exit()

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
