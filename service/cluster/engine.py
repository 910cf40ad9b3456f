"""The engine of an ingress replica: sends windows to model replicas.

It implements ``service.engine.interface``, so sessions and endpoints are those of the single
process. It keeps the recent audio of each stream, so that any replica can take over: after a fault,
the request is sent again by another route, with the audio that a fresh front-end needs.

Requests run on the event loop that made the engine; ``submit``, ``close``, ``abandon`` and all
properties may be used from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, WINDOW
from service.cluster.calls import (
    CallReplica,
    Description,
    OtherWeightsError,
    WindowRequest,
    attempts,
    describe,
    refill_windows,
)
from service.engine.batching import (
    EngineClosedError,
    EngineError,
    Priority,
    Probabilities,
    Window,
)
from service.settings import ClusterSettings

logger = logging.getLogger(__name__)


class RemoteEngine:
    """The model's replicas as one engine. Made by ``connect``, on the loop that it uses."""

    def __init__(
        self, call: CallReplica, description: Description, settings: ClusterSettings
    ) -> None:
        self._call = call
        self._adopt(description)
        self._cluster = settings
        self._loop = asyncio.get_running_loop()
        self._heard_s = time.monotonic()
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()  # of the loop
        self._keep(self._loop.create_task(self._watch()))

    @classmethod
    async def connect(cls, call: CallReplica, settings: ClusterSettings) -> RemoteEngine:
        """Waits as long as it takes for a replica to describe itself."""
        while True:
            try:
                return cls(call, await describe(call, settings, None), settings)
            except EngineError as error:
                logger.warning("no model yet: %s", error)
            await asyncio.sleep(settings.heartbeat_s)

    def _adopt(self, description: Description) -> None:
        self.description = description
        self.config = description.config
        self.card = description.card
        self.settings = description.settings

    @property
    def ready(self) -> bool:
        """Not closed, and a replica answered recently."""
        return not self._closed and self.heartbeat_age_s <= self._cluster.heartbeat_patience_s

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since any replica answered.

        They are polled continuously, so a slow request does not count as a hang.
        """
        return time.monotonic() - self._heard_s

    def open_stream(self, priority: Priority, positions: slice) -> RemoteStream:
        """A stream on the current weights. Raises EngineClosedError."""
        if self._closed:
            raise EngineClosedError("the engine is closed")
        return RemoteStream(self, priority, positions)

    def submit(
        self, stream: RemoteStream, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> Future[Probabilities]:
        """See ``service.engine.interface.EngineStreamLike``."""
        count, limit = len(windows), self.settings.limit(stream.priority)
        if not 1 <= count <= limit:
            raise ValueError(f"a request holds 1 to {limit} windows, not {count}")
        step = new_hops * HOP
        samples = np.concatenate([windows[0], *(window[-step:] for window in windows[1:])])
        if self._closed:
            raise EngineClosedError("the engine is closed")
        answer = self._answer(stream, samples, count, new_hops, shift)
        return asyncio.run_coroutine_threadsafe(answer, self._loop)

    async def ask(self, stream: RemoteStream, request: WindowRequest) -> Probabilities | None:
        """A request's answer from any replica. Raises EngineError after the last attempt."""
        live = stream.priority is Priority.LIVE
        timeout_s = self._cluster.live_timeout_s if live else self._cluster.file_timeout_s
        try:
            answer: Probabilities | None = await attempts(
                lambda: self._call(stream.route, "predict", request),
                stream.change_route,
                timeout_s,
                self._cluster,
            )
        except OtherWeightsError:
            await self._look()  # so that clients resume on the new weights
            raise
        self._heard_s = time.monotonic()
        return answer

    async def load(self, route: str) -> float:
        """Streams on the replica of this route; infinite if it hangs or does not answer."""
        try:
            async with asyncio.timeout(self._cluster.live_timeout_s):
                streams: float = await self._call(route, "load")
                return streams
        except (EngineError, TimeoutError):
            return math.inf

    def close(self, timeout_s: float = 10.0) -> None:
        """As ``abandon``: there is no worker to wait for."""
        self.abandon()

    def abandon(self) -> None:
        """Fail pending requests and accept no more; idempotent."""
        self._closed = True

        def cancel() -> None:
            for task in list(self._tasks):
                task.cancel()

        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all tasks
            self._loop.call_soon_threadsafe(cancel)

    # -- on the loop ------------------------------------------------------------------------------

    async def _answer(
        self,
        stream: RemoteStream,
        samples: NDArray[np.float32],
        count: int,
        new_hops: int,
        shift: int,
    ) -> Probabilities:
        task = asyncio.current_task()
        assert task is not None
        self._keep(task)
        try:
            return await stream.predict(samples, count, new_hops, shift)
        except asyncio.CancelledError:
            if self._closed:
                raise EngineClosedError("the engine was given up") from None
            raise
        except EngineError:
            raise
        except Exception as error:
            logger.exception("a request to the model failed")
            raise EngineError(f"the request to the model failed: {error}") from error

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._closed:
            task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._cluster.heartbeat_s)
            await self._look()

    async def _look(self) -> None:
        """Polls a replica, and adopts new weights once no replica has the old ones.

        Streams on the old weights fail with their next request; their clients resume on the new.
        """
        try:
            found = await describe(self._call, self._cluster, self.description.weights)
        except EngineError as error:
            logger.warning("the model does not answer: %s", error)
            return
        self._heard_s = time.monotonic()
        if found.weights != self.description.weights:
            logger.warning("the weights were replaced: now %s", found.config.name)
            self._adopt(found)


class RemoteStream:
    """One stream: its route, and the audio that another replica needs to take over."""

    def __init__(self, engine: RemoteEngine, priority: Priority, positions: slice) -> None:
        self.priority = priority
        self._engine = engine
        self._weights = engine.description.weights
        self._positions = (positions.start, positions.stop)
        self._turn = asyncio.Lock()  # one request of a stream at a time
        self._audio: NDArray[np.float32] = np.empty(0, np.float32)  # windows before the next
        self._begin(0)

    @property
    def depth(self) -> int:
        """One request: a stream's are computed one after the other."""
        return self._engine.settings.limit(self.priority)

    @property
    def route(self) -> str:
        """Requests with the same route go to the same replica while it exists."""
        return f"{self._name}-{self._detours}"

    def change_route(self) -> None:
        self._detours += 1

    def submit(
        self, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> Future[Probabilities]:
        return self._engine.submit(self, windows, new_hops, shift)

    def close(self) -> None:
        """Nothing to do: replicas drop idle streams."""

    async def predict(
        self, samples: NDArray[np.float32], count: int, new_hops: int, shift: int
    ) -> Probabilities:
        """Probabilities of the windows in the samples. Raises EngineError."""
        async with self._turn:
            if new_hops != self._new_hops:
                self._begin(new_hops)
            step = new_hops * HOP
            if self._first:
                audio = np.concatenate([self._audio, samples[-count * step :]])
            else:
                audio = samples
                await self._choose_route()
            try:
                answer = await self._engine.ask(self, self._request(samples, count, shift))
                if answer is None:
                    answer = await self._engine.ask(self, self._request(audio, count, shift))
                if answer is None:
                    raise EngineError("no model replica takes over the stream")
            except BaseException:
                self._begin(0)  # the next windows cannot follow the missing ones
                raise
            self._first += count
            kept = min(self._first, refill_windows(self._engine.config, new_hops))
            self._audio = audio[-(WINDOW + (kept - 1) * step) :].copy()
            return answer

    async def _choose_route(self) -> None:
        """To the emptier of two replicas, which spreads streams far better than chance."""
        first = await self._engine.load(self.route)
        if first:
            self.change_route()
            if await self._engine.load(self.route) > first:
                self._detours -= 1

    def _begin(self, new_hops: int) -> None:
        """A fresh front-end: at the start, after a fault, or for another window step."""
        self._name = secrets.token_hex(8)
        self._detours = 0
        self._new_hops = new_hops
        self._first = 0  # number of the next window

    def _request(self, samples: NDArray[np.float32], count: int, shift: int) -> WindowRequest:
        return WindowRequest(
            stream=self._name,
            weights=self._weights,
            priority=self.priority,
            positions=self._positions,
            new_hops=self._new_hops,
            first=self._first,
            count=count,
            samples=samples,
            shift=shift,
        )
