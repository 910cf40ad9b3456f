"""The one owner of the model: gathers due windows of all streams and runs them as batches.

Sessions ``submit`` windows and wait for futures; nothing else reaches the model. Behind the same
``open_stream`` and ``submit`` another transport can stand (another process, a cluster), as a
request carries all that it needs: the windows whole, and how far each slid since the one before.

Order of work: live streams first, then files, and the two never share a batch, so that a live
window waits for one file batch at most (``max_file_batch_windows`` bounds it). Within a priority,
first come, first served, with at most one request of a stream in a batch.

A request fails alone where its own windows fail, and with its batch where the batch does; either
way the worker goes on, and the streams concerned begin with a fresh front-end state.

Thread-safety: ``submit``, ``open_stream``, ``EngineStream.close``, ``close`` and all properties
may be called from any thread. The worker thread alone touches the model and the feature streams.
The queues and the set of open streams are guarded by one condition, which is never held while the
model runs. Futures are resolved by the worker: from asyncio, await ``asyncio.wrap_future``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import WINDOW, ModelConfig

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 0.5  # an idle worker shows that it lives this often

Window = NDArray[np.float32]  # [WINDOW] samples
Probabilities = NDArray[np.float32]  # [windows, heads, frames, PITCHES]


class FeatureStream(Protocol):
    """Front-end state of one stream (see ``model.transcriber``)."""

    def advance(self, window: Tensor, new_hops: int) -> Tensor: ...


class Transcriber(Protocol):
    """What the engine needs of ``model.transcriber.Transcriber``."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def card(self) -> Mapping[str, Any]: ...

    def open_stream(self) -> FeatureStream: ...

    def predict_features(self, features: Tensor) -> Tensor: ...


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


class EngineStream:
    """One stream's place in the engine: its priority, its output positions, its front-end."""

    def __init__(self, engine: Engine, priority: Priority, positions: slice) -> None:
        self.engine = engine
        self.priority = priority
        self.positions = positions
        self.features: FeatureStream | None = None  # the worker's; None: to be opened anew

    def submit(self, windows: Sequence[Window], new_hops: int) -> Future[Probabilities]:
        """``Engine.submit`` for this stream."""
        return self.engine.submit(self, windows, new_hops)

    def close(self) -> None:
        """Give up the place; safe to call twice."""
        self.engine.release(self)


@dataclass(slots=True)
class _Request:
    stream: EngineStream
    windows: list[Window]
    new_hops: int
    future: Future[Probabilities]


class Engine:
    """A worker thread that runs the model for all streams. Close it, or use it in ``with``."""

    def __init__(self, transcriber: Transcriber, settings: EngineSettings | None = None) -> None:
        """The model runs on the device that its weights are on."""
        self.settings = settings or EngineSettings()
        self._transcriber = transcriber
        self._device = _device_of(transcriber)
        self._changed = threading.Condition()
        self._queues: dict[Priority, deque[_Request]] = {p: deque() for p in Priority}
        self._queued_windows = 0
        self._live_streams: set[EngineStream] = set()
        self._closed = False
        self._warm = False
        self._heartbeat = time.monotonic()
        self._worker = threading.Thread(target=self._run, name="engine", daemon=True)
        self._worker.start()

    @property
    def config(self) -> ModelConfig:
        """The model's dimensions, rate and heads."""
        return self._transcriber.config

    @property
    def card(self) -> Mapping[str, Any]:
        """What the model's checkpoint says of itself."""
        return self._transcriber.card

    @property
    def ready(self) -> bool:
        """Warmed up, alive and not closed."""
        return self._warm and not self._closed and self._worker.is_alive()

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the worker last showed that it lives: long ones mean that it hangs."""
        return time.monotonic() - self._heartbeat

    @property
    def queued_windows(self) -> int:
        """Windows waiting for the worker."""
        return self._queued_windows

    def warm_up(self) -> None:
        """Run silence through the model, so that no stream pays for first-time work.

        Raises EngineError where the model does not run.
        """
        silence = np.zeros(WINDOW, np.float32)
        stream = self.open_stream(Priority.FILE, slice(0, 1))
        try:
            for count in sorted({1, self.settings.max_file_batch_windows}):
                stream.submit([silence] * count, new_hops=1).result()
        finally:
            stream.close()
        self._warm = True

    def open_stream(self, priority: Priority, positions: slice) -> EngineStream:
        """A place for a stream whose requests are answered with these of the model's FRAMES
        positions. Raises EngineClosedError."""
        stream = EngineStream(self, priority, positions)
        with self._changed:
            self._refuse_if_closed()
            if priority is Priority.LIVE:
                self._live_streams.add(stream)
        return stream

    def release(self, stream: EngineStream) -> None:
        """Forget a stream; its requests that wait are still answered."""
        with self._changed:
            self._live_streams.discard(stream)
            self._changed.notify_all()  # a batch may be waiting for it

    def submit(
        self, stream: EngineStream, windows: Sequence[Window], new_hops: int
    ) -> Future[Probabilities]:
        """Ask for the probabilities of a stream's next windows, oldest first.

        Args:
            windows: float32, [WINDOW] each; they must stay as they are until the future is done.
            new_hops: hops from each window to the next, and to the first from the stream's last.

        Returns:
            A future of float32 [windows, heads, positions, PITCHES]. It fails with EngineError.

        Raises:
            EngineBusyError: too many windows wait.
            EngineClosedError: there is no worker any more.
            ValueError: no windows, or more than a batch holds.
        """
        limit = self._batch_limit(stream.priority)
        if not 1 <= len(windows) <= limit:
            raise ValueError(f"a request holds 1 to {limit} windows, not {len(windows)}")
        request = _Request(stream, list(windows), new_hops, Future())
        with self._changed:
            self._refuse_if_closed()
            if self._queued_windows + len(windows) > self.settings.max_queued_windows:
                raise EngineBusyError(f"{self._queued_windows} windows wait for the model already")
            self._queues[stream.priority].append(request)
            self._queued_windows += len(windows)
            self._changed.notify_all()
        return request.future

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop the worker after its current batch and fail what waits; safe to call twice."""
        with self._changed:
            self._closed = True
            waiting = [request for queue in self._queues.values() for request in queue]
            for queue in self._queues.values():
                queue.clear()
            self._queued_windows = 0
            self._changed.notify_all()
        for request in waiting:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(EngineClosedError("the engine was closed"))
        self._worker.join(timeout_s)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the worker -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            batch: list[_Request] = []
            try:
                batch = self._gather()
                if batch:
                    self._step(batch)
            except Exception as error:  # a fault of the engine itself must not end all streams
                logger.exception("the engine failed on a batch of %d requests", len(batch))
                _fail(batch, error)

    def _gather(self) -> list[_Request]:
        """The next batch; none after _HEARTBEAT_S without work."""
        with self._changed:
            self._heartbeat = time.monotonic()
            self._changed.wait_for(self._has_work, _HEARTBEAT_S)
            self._heartbeat = time.monotonic()
            if self._closed:
                return []
            if self._queues[Priority.LIVE]:
                self._changed.wait_for(self._batch_complete, self.settings.gather_ms / 1000)
            for priority in Priority:
                if self._queues[priority]:
                    return self._take(priority)
            return []

    def _has_work(self) -> bool:
        return self._closed or any(self._queues.values())

    def _batch_complete(self) -> bool:
        """Nobody is left whose window could still join."""
        live = self._queues[Priority.LIVE]
        due = {request.stream for request in live}
        windows = sum(len(request.windows) for request in live)
        return (
            self._closed or due >= self._live_streams or windows >= self.settings.max_batch_windows
        )

    def _take(self, priority: Priority) -> list[_Request]:
        """Requests for one batch, in order; a stream's second one waits for the next batch."""
        limit, queue = self._batch_limit(priority), self._queues[priority]
        batch: list[_Request] = []
        later: list[_Request] = []
        streams: set[EngineStream] = set()
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
        self._queued_windows -= count
        return batch

    def _batch_limit(self, priority: Priority) -> int:
        if priority is Priority.LIVE:
            return self.settings.max_batch_windows
        return self.settings.max_file_batch_windows

    def _step(self, batch: list[_Request]) -> None:
        """Front-end by stream, network by batch, results by request."""
        rows: list[Tensor] = []
        run: list[_Request] = []
        for request in batch:
            if not request.future.set_running_or_notify_cancel():
                request.stream.features = None  # it missed a window
                continue
            try:
                rows += self._features(request)
            except Exception as error:
                logger.exception("the front-end failed on a request")
                _fail([request], error)
                continue
            run.append(request)
        if not run:
            return
        try:
            probabilities = self._transcriber.predict_features(torch.stack(rows))
            done = [
                part[:, :, request.stream.positions].cpu().numpy()
                for request, part in zip(
                    run, probabilities.split([len(r.windows) for r in run]), strict=True
                )
            ]
        except Exception as error:
            logger.exception("the model failed on a batch of %d windows", len(rows))
            _fail(run, error)
            return
        for request, part in zip(run, done, strict=True):
            request.future.set_result(part)

    def _features(self, request: _Request) -> list[Tensor]:
        stream = request.stream
        if stream.features is None:
            stream.features = self._transcriber.open_stream()
        features = stream.features
        return [
            features.advance(torch.from_numpy(window).to(self._device), request.new_hops)
            for window in request.windows
        ]

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")


def _device_of(transcriber: Transcriber) -> torch.device:
    """Where the weights are, so that the windows go there too."""
    if isinstance(transcriber, torch.nn.Module):
        for weights in transcriber.parameters():
            return weights.device
    return torch.device("cpu")


def _fail(requests: Sequence[_Request], error: Exception) -> None:
    """Tell the requests, and let their streams begin anew: their front-end may be half-way."""
    for request in requests:
        request.stream.features = None
        if not request.future.done():
            failure = EngineError(f"the model failed: {error}")
            failure.__cause__ = error
            request.future.set_exception(failure)
