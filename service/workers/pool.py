"""The service's workers: start and replace them, share out live sessions and segments."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from model.config import ModelConfig
from service.protocol.faults import internal_error
from service.stream.windows import Due, EngineError, Probabilities
from service.workers.link import MOST_UNANSWERED, Link, Relay
from service.workers.messages import Computed, Hello, LoadedModel, Open, Setup, Stepped
from service.workers.process import PROCESSES
from service.workers.segments import ENDED, Asked, Segments

logger = logging.getLogger(__name__)

MOST_WORKERS = 8
_DRIVER = Path("/dev/nvidiactl")  # without it there is no CUDA
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between starts that fail


class Observer(Protocol):
    """Counts what workers do; must be quick and must not raise."""

    def stepped(self, step: Stepped) -> None: ...
    def worker_ended(self) -> None: ...


class Pool:
    """Workers with a copy of the model each (``service.stream.windows.Computer`` for recordings).

    Everything is for the event loop that ``start`` runs in, except ``submit``, which may be called
    from any other thread.

    Attributes:
        config, card: of the model; known after ``start``, as what follows.
        piano: computes with the model for pianos; None without one.
        device: where they compute.
        workers: how many.
        windows: computed so far.
    """

    def __init__(
        self,
        setup: Setup,
        cores: int,
        workers: int | None = None,
        hang_timeout_s: float = 60.0,
        observer: Observer | None = None,
        processes: bool = PROCESSES,
    ) -> None:
        """Args:
        cores: that this service may use.
        workers: None: one for each core of a CPU, at most MOST_WORKERS; one for a GPU.
        hang_timeout_s: without an answer, after which a worker is replaced.
        processes: whether several workers, or those of a GPU, may be processes.
        """
        self._setup, self._cores, self._wanted = setup, cores, workers
        self._hang_timeout_s, self._observer, self._processes = hang_timeout_s, observer, processes
        self._links: list[Link] = []
        self._unplaced: set[Relay] = set()  # sessions without a worker
        self._numbers = itertools.count(1)
        self._segments = Segments(self._links)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False  # from `start` to `close`
        self.device = setup.device
        self.windows = 0

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the workers have loaded the model. Raises EngineError if one cannot."""
        self._loop = asyncio.get_running_loop()
        count = self._wanted or min(self._cores, MOST_WORKERS)
        device = self._setup.device
        on_gpu = device.startswith("cuda") or (device == "auto" and _DRIVER.exists())  # noqa: ASYNC240
        own_process = self._processes and (count > 1 or on_gpu)
        if not own_process:
            count = 1
        hello = await self._launch_all(1 if on_gpu else count, own_process)
        self.config: ModelConfig = hello.config
        self.card: Mapping[str, Any] = hello.card
        self.piano = None if hello.piano is None else PianoEngine(self, hello.piano)
        self.device = hello.device
        on_gpu = hello.device.startswith("cuda")
        self.workers = 1 if on_gpu and self._wanted is None else count
        if missing := self.workers - len(self._links):
            await self._launch_all(missing, own_process)
        self._running = True
        self._keep(self._watch())
        for link in [link for link in self._links if link.closed]:  # while others were loading
            self._lost(link)
        logger.info("workers: %d on %s, %s", len(self._links), self.device, self.config.name)

    async def _launch_all(self, count: int, own_process: bool) -> Hello:
        """What the first says. Raises EngineError; then there are no workers."""
        try:
            return (await asyncio.gather(*(self._launch(own_process) for _ in range(count))))[0]
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all workers; sessions and segments that are under way fail. Idempotent."""
        self._running = False
        for task in self._tasks:
            task.cancel()
        for link in list(self._links):
            self._retire(link)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._segments.close()
        self._give_up_unplaced()

    @property
    def ready(self) -> bool:
        """Whether a worker is there."""
        return any(link.up for link in self._links)

    @property
    def hangs(self) -> bool:
        """Whether a worker that cannot be replaced, a thread, does not answer."""
        return any(link.hangs for link in self._links)

    # -- live sessions ----------------------------------------------------------------------------

    def open_session(self, opening: Open) -> Relay:
        """Open a session in the worker that has least to do; its number is set here."""
        session = Relay(replace(opening, stream=next(self._numbers)), self.config)
        self._place(session)
        return session

    def close_session(self, session: Relay) -> None:
        """It is over, or nobody waits for it any more."""
        session.drop()
        self._unplaced.discard(session)

    def _place(self, session: Relay) -> None:
        """In a worker; without any, in the next that starts."""
        up = [link for link in self._links if link.up]
        if up:
            session.move_to(min(up, key=lambda link: link.load))
        else:
            self._unplaced.add(session)

    # -- recordings -------------------------------------------------------------------------------

    def submit(self, segment: Due, for_piano: bool = False) -> Future[Probabilities]:
        asked = Asked(segment, for_piano)
        try:
            self._loop.call_soon_threadsafe(self._segments.ask, asked)
        except RuntimeError:  # it has ended
            asked.fail(ENDED)
        return asked.future

    # -- workers ----------------------------------------------------------------------------------

    async def _launch(self, own_process: bool) -> Hello:
        """Start a worker. Raises EngineError or OSError; then there is none."""
        link = Link(own_process, self._worked, self._lost)
        self._links.append(link)
        try:
            return await link.start(self._setup)
        except (EngineError, OSError):
            self._retire(link)
            raise

    def _worked(self, link: Link, done: Computed | Stepped) -> None:
        if isinstance(done, Computed):
            self._segments.computed(link, done)
            return
        self.windows += done.windows
        if self._observer is not None:
            self._observer.stepped(done)

    def _lost(self, link: Link) -> None:
        """A worker has ended: others go on with what it had, and another takes its place."""
        if link not in self._links or not self._running or link.hello is None:
            return
        self._links.remove(link)
        logger.error("a worker has ended: starting another")
        if self._observer is not None:
            self._observer.worker_ended()
        self._segments.lost(link)
        sessions, link.sessions = link.sessions, {}
        for session in sessions.values():
            if session.lost():
                self._place(session)
        self._keep(self._replace(link))

    async def _replace(self, link: Link) -> None:
        await asyncio.to_thread(link.wait)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._launch(own_process=link.own_process)
                break
            except (EngineError, OSError) as error:
                logger.error("no worker: %s; next attempt in %.0f s", error, pause_s)
                if not self._links:  # nor may another that is starting go on with them
                    self._give_up_unplaced()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._segments.share_out()
        unplaced, self._unplaced = self._unplaced, set()
        for session in unplaced:
            self._place(session)

    def _give_up_unplaced(self) -> None:
        for session in self._unplaced:
            session.give_up(internal_error())
        self._unplaced.clear()

    def _retire(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            for session in link.sessions.values():
                session.give_up(internal_error())
            link.kill()
            self._keep(asyncio.to_thread(link.wait))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._hang_timeout_s / MOST_UNANSWERED)
            for link in list(self._links):
                link.look()
                if link.hangs and link.own_process:
                    logger.error("a worker hangs: ending it")
                    link.kill()

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class PianoEngine:
    """A pool's second model, for recordings of pianos (``service.stream.windows.Computer``)."""

    def __init__(self, pool: Pool, model: LoadedModel) -> None:
        self.config, self.card = model
        self._pool = pool

    @property
    def workers(self) -> int:
        return self._pool.workers

    def submit(self, segment: Due) -> Future[Probabilities]:
        return self._pool.submit(segment, for_piano=True)


class BackgroundPool:
    """A ``pool`` for a program without an event loop: its own runs in a thread."""

    def __init__(self, pool: Pool) -> None:
        """Returns when the workers have loaded the model. Raises EngineError if one cannot."""
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
        """End the workers; idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self.pool.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
