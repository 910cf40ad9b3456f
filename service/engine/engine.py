"""The sole owner of the model: collects due windows of all streams and runs them in batches.

Sessions ``submit`` windows and wait for futures; nothing else reaches the model. They use the
protocol of ``service.engine.interface``, which another transport can implement. ``batching``
decides the order of work, ``runners`` compute it.

If a request's own windows fail, only that request fails; if a batch fails, all its requests do.
Either way the worker continues, and the streams affected restart with fresh front-end state.

Thread-safety: everything but ``warm_up`` may be called from any thread. Only worker threads touch
the model, and only one at a time touches a stream's front-end. The queue has its own lock, which is
never held while the model runs. Workers resolve the futures: from asyncio, await
``asyncio.wrap_future``.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from model.config import HOP, WINDOW
from service.engine.batching import (
    EngineClosedError,
    EngineError,
    EngineSettings,
    Part,
    Priority,
    Probabilities,
    RequestQueue,
)
from service.engine.interface import EngineModel, EngineObserver
from service.engine.processes import AVAILABLE, WorkerProcess
from service.engine.runners import runner_of, set_own_threads
from service.engine.segments import EngineStream, SegmentedStream

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 0.5  # interval at which an idle worker signals that it is alive


class Engine:
    """Workers, threads or processes, that run the model for all streams. Close it, or use it in
    ``with``."""

    def __init__(
        self,
        transcriber: EngineModel,
        settings: EngineSettings | None = None,
        observer: EngineObserver | None = None,
    ) -> None:
        """The model runs on the device of its weights. There is one worker until ``warm_up`` has
        measured how many pay off."""
        self.config = transcriber.config
        self.card = transcriber.card
        self.settings = settings or EngineSettings()
        self._observer = observer
        self._runner = runner_of(transcriber)
        self._requests = RequestQueue(self.settings)
        if not self._runner.batches_pay:
            self._requests.bound(1, gather_s=0)
        self._warm = False
        self._threads = self._runner.threads
        self._beats: dict[int, float] = {}  # by worker
        self._running: dict[int, list[Part]] = {}  # by worker
        self._given_up: EngineClosedError | None = None  # by `abandon`
        self._workers: list[threading.Thread] = []
        self._transcriber = transcriber
        self._processes: list[WorkerProcess] = []  # by worker; none: the workers compute
        self._add_worker()

    @property
    def ready(self) -> bool:
        alive = all(worker.is_alive() for worker in self._workers)
        down = self._processes and all(process.down for process in self._processes)
        return self._warm and not self._requests.closed and alive and not down

    @property
    def heartbeat_age_s(self) -> float:
        return time.monotonic() - min(self._beats.copy().values())

    @property
    def workers(self) -> int:
        """Number of batches computed concurrently."""
        return len(self._workers)

    @property
    def stream_share(self) -> float:
        """The share of all workers' speed that a single live stream can use."""
        return 1 / len(self._processes) if self._processes else 1.0

    def warm_up(self) -> None:
        """Run silence through the model, so that no stream pays for first-time work, and measure
        its speed, which determines the number of workers and the batch size.

        Raises EngineError if the model does not run.
        """
        stream = self.open_stream(Priority.FILE, slice(0, 1))
        try:
            stream.submit([np.zeros(WINDOW, np.float32)], new_hops=1).result()
        finally:
            stream.close()
        plan = self._runner.plan(self.settings)
        processes = min(plan.workers, self.settings.worker_processes)
        if processes > 1 and AVAILABLE and self._start_processes(processes, plan.batch_windows):
            plan = replace(plan, workers=processes)
        self._threads = plan.threads
        gather_s = self.settings.gather_ms / 1000 if self._runner.batches_pay else 0.0
        self._requests.bound(plan.batch_windows, gather_s, plan.workers)
        while len(self._workers) < plan.workers:
            self._add_worker()
        self._warm = True
        message = "workers of the model: %d, windows in a batch: at most %d"
        logger.info(message, plan.workers, plan.batch_windows)

    def _start_processes(self, count: int, batch_windows: int) -> bool:
        """All at once, since loading takes seconds; returns whether they are there."""
        heads = len(self.config.outputs)
        model = pickle.dumps(self._transcriber)
        start = partial(WorkerProcess, model, heads, batch_windows)
        with ThreadPoolExecutor(count) as pool:
            starting = [pool.submit(start) for _ in range(count)]
        started = [one.result() for one in starting if one.exception() is None]
        if len(started) < count:
            for process in started:
                process.kill()
            error = next(filter(None, (one.exception() for one in starting)))
            logger.warning("no worker processes, so threads compute: %s", error)
            return False
        self._requests.pin(count)
        self._processes = started
        if self._requests.closed:  # meanwhile
            self._kill_processes()
        return True

    def open_stream(self, priority: Priority, positions: slice) -> EngineStream | SegmentedStream:
        """See ``EngineLike``. With several workers a recording is computed in segments."""
        if priority is Priority.FILE and self.workers > 1:
            return SegmentedStream(
                lambda: self._open(priority, positions), self.config.refill_hops, self.workers
            )
        return self._open(priority, positions)

    def _open(self, priority: Priority, positions: slice) -> EngineStream:
        return EngineStream(self._requests, priority, positions, HOP / self.config.sample_rate)

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop the workers after their current batches and fail waiting requests; idempotent."""
        for request in self._requests.close():
            request.fail(EngineClosedError("the engine was closed"))
        deadline = time.monotonic() + timeout_s  # shared by all workers
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        self._kill_processes()
        for process in self._processes:
            process.wait()

    def abandon(self) -> None:
        """See ``EngineLike``. A worker that recovers finds its requests answered and ends."""
        hanging = self._given_up = EngineClosedError("the engine hangs and was given up")
        for request in self._requests.close():
            request.fail(hanging)
        for batch in list(self._running.values()):
            for part in batch:
                part.request.fail(hanging)
        self._kill_processes()

    def _kill_processes(self) -> None:
        for process in self._processes:
            process.kill()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the workers ------------------------------------------------------------------------------

    def _add_worker(self) -> None:
        number = len(self._workers)
        self._beats[number] = time.monotonic()
        name = f"engine-{number}"
        self._workers.append(
            threading.Thread(target=self._run, args=[number], name=name, daemon=True)
        )
        self._workers[-1].start()

    def _run(self, number: int) -> None:
        # Per thread: audio that fades out below 1e-38 would make the front-end fifty times slower
        # (x86 handles denormal numbers in microcode).
        torch.set_flush_denormal(True)
        threads: int | None = None
        while not self._requests.closed:
            batch: list[Part] = []
            try:
                self._beats[number] = time.monotonic()
                if self._processes:
                    self._processes[number].revive()
                    self._requests.rest(number, self._processes[number].down)
                batch = self._requests.next_batch(_HEARTBEAT_S, number)
                self._beats[number] = time.monotonic()
                if threads != self._threads and self._threads is not None:
                    threads = self._threads
                    set_own_threads(threads)
                self._running[number] = batch
                if self._given_up is not None:  # possibly since the batch was taken
                    for part in batch:
                        part.request.fail(self._given_up)
                elif batch and self._processes:
                    self._hand_over(batch, number)
                elif batch:
                    self._step(batch)
            except Exception as error:  # a fault in the engine itself must not end all streams
                logger.exception("the engine failed on a batch of %d requests", len(batch))
                _fail(batch, error)

    def _step(self, batch: list[Part]) -> None:
        """Front-end by stream, network by batch, results by request."""
        began_s = time.monotonic()
        waited_s = began_s - min(part.request.submitted_s for part in batch)
        rows: list[Tensor] = []
        run: list[Part] = []
        for part in batch:
            features = self._features(part)
            if features is not None and part.unread < len(part):
                rows += features[part.unread :]
                run.append(part)
        if not run:
            return
        positions = run[0].request.stream.positions
        self._settle(run, began_s, waited_s, lambda: self._runner.predict(rows, positions))

    def _hand_over(self, batch: list[Part], number: int) -> None:
        """The same in the worker's process."""
        process = self._processes[number]
        began_s = time.monotonic()
        waited_s = began_s - min(part.request.submitted_s for part in batch)
        wanted: list[Part] = []
        for part in batch:
            if part.request.begin():
                wanted.append(part)
            else:
                process.forget(part.request.stream)

        def compute() -> Probabilities:
            try:
                errors, probabilities = process.compute(wanted)
            finally:  # before clients hear of it, and come again
                self._requests.rest(number, process.down)
            for part, error in zip(list(wanted), errors, strict=True):
                if error is not None:
                    logger.error("the front-end failed on a request: %s", error)
                    _fail([part], RuntimeError(error))
                    wanted.remove(part)
            return probabilities

        try:
            if wanted:
                self._settle(wanted, began_s, waited_s, compute)
        finally:
            for part in batch:
                self._requests.release(part.request.stream)

    def _settle(
        self,
        parts: list[Part],
        began_s: float,
        waited_s: float,
        compute: Callable[[], Probabilities],
    ) -> None:
        """Answers the parts with what is computed, or fails them."""
        windows = sum(len(part) - part.unread for part in parts)
        priority = parts[0].request.stream.priority
        try:
            probabilities = compute()
        except Exception as error:
            logger.exception("the model failed on a batch of %d windows", windows)
            if self._observer is not None:  # before the answer, so that it is counted by then
                self._observer.batch_failed(priority)
            _fail(parts, error)
            return
        if self._observer is not None and len(probabilities):
            step_s = time.monotonic() - began_s
            self._observer.batch_done(priority, len(probabilities), step_s, waited_s)
        first = 0
        for part in parts:
            read = len(part) - part.unread
            if read:
                part.request.answer(part.first, probabilities[first : first + read])
            first += read

    def _features(self, part: Part) -> list[Tensor] | None:
        """Rows of the part's windows; None if nobody waits for them or they failed."""
        request, stream = part.request, part.request.stream
        try:
            if not request.begin():
                stream.features = None  # it missed a window
                return None
            features = stream.features
            if features is None:  # another worker may reset it when this stream's last batch fails
                features = stream.features = self._runner.open_stream(stream.positions)
            return self._runner.rows(features, part.windows, request.new_hops, request.shift)
        except Exception as error:
            logger.exception("the front-end failed on a request")
            _fail([part], error)
            return None
        finally:
            self._requests.release(stream)


def _fail(parts: Sequence[Part], error: Exception) -> None:
    """Fail the requests and reset their streams: a front-end may be half-way through."""
    for part in parts:
        part.request.stream.features = None
        failure = EngineError(f"the model failed: {error}")
        failure.__cause__ = error
        part.request.fail(failure)
