"""The one owner of the model: gathers due windows of all streams and runs them as batches.

Sessions ``submit`` windows and wait for futures; nothing else reaches the model. They know it by
``service.engine_interface``, behind which another transport can stand.

``service.batching`` has the order of work: live streams first, then files.

A request fails alone where its own windows fail, and with its batch where the batch does; either
way the worker goes on, and the streams concerned begin with a fresh front-end state.

Thread-safety: ``submit``, ``open_stream``, ``EngineStream.close``, ``close`` and all properties
may be called from any thread. The worker thread alone touches the model and the feature streams.
The queue has its own lock, which is never held while the model runs. Futures are resolved by the
worker: from asyncio, await ``asyncio.wrap_future``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from model.config import WINDOW, ModelConfig
from service.batching import (
    EngineBusyError,
    EngineClosedError,
    EngineError,
    EngineSettings,
    Priority,
    Probabilities,
    Request,
    RequestQueue,
    RequestStream,
    Window,
)
from service.engine_interface import EngineObserver

__all__ = [
    "Engine",
    "EngineBusyError",
    "EngineClosedError",
    "EngineError",
    "EngineSettings",
    "EngineStream",
    "FeatureStream",
    "Priority",
    "Transcriber",
]

logger = logging.getLogger(__name__)

_HEARTBEAT_S = 0.5  # an idle worker shows that it lives this often


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


class EngineStream(RequestStream):
    """One stream's place in the engine: its priority, its output positions, its front-end."""

    def __init__(self, engine: Engine, priority: Priority, positions: slice) -> None:
        super().__init__(priority)
        self.engine = engine
        self.positions = positions
        self.features: FeatureStream | None = None  # the worker's; None: to be opened anew

    def submit(self, windows: Sequence[Window], new_hops: int) -> Future[Probabilities]:
        """``Engine.submit`` for this stream."""
        return self.engine.submit(self, windows, new_hops)

    def close(self) -> None:
        """Give up the place; safe to call twice."""
        self.engine.release(self)


_EngineRequest = Request[EngineStream]


class Engine:
    """A worker thread that runs the model for all streams. Close it, or use it in ``with``."""

    def __init__(
        self,
        transcriber: Transcriber,
        settings: EngineSettings | None = None,
        observer: EngineObserver | None = None,
    ) -> None:
        """The model runs on the device that its weights are on."""
        self._settings = settings or EngineSettings()
        self._observer = observer
        self._transcriber = transcriber
        self._device = _device_of(transcriber)
        self._requests: RequestQueue[EngineStream] = RequestQueue(self._settings)
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
    def settings(self) -> EngineSettings:
        """Bounds of requests and of the queue."""
        return self._settings

    @property
    def ready(self) -> bool:
        """Warmed up, alive and not closed."""
        return self._warm and not self._requests.closed and self._worker.is_alive()

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the worker last showed that it lives: long ones mean that it hangs."""
        return time.monotonic() - self._heartbeat

    @property
    def queued_windows(self) -> int:
        """Windows waiting for the worker."""
        return self._requests.windows

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
        self._requests.enter(stream)
        return stream

    def release(self, stream: EngineStream) -> None:
        """Forget a stream; its requests that wait are still answered."""
        self._requests.leave(stream)

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
        request = Request(stream, list(windows), new_hops, Future())
        self._requests.put(request)
        return request.future

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop the worker after its current batch and fail what waits; safe to call twice."""
        for request in self._requests.close():
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(EngineClosedError("the engine was closed"))
        self._worker.join(timeout_s)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the worker -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._requests.closed:
            batch: list[_EngineRequest] = []
            try:
                self._heartbeat = time.monotonic()
                batch = self._requests.next_batch(_HEARTBEAT_S)
                self._heartbeat = time.monotonic()
                if batch:
                    self._step(batch)
            except Exception as error:  # a fault of the engine itself must not end all streams
                logger.exception("the engine failed on a batch of %d requests", len(batch))
                _fail(batch, error)

    def _step(self, batch: list[_EngineRequest]) -> None:
        """Front-end by stream, network by batch, results by request."""
        rows: list[Tensor] = []
        run: list[_EngineRequest] = []
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
        began_s = time.monotonic()
        priority = run[0].stream.priority
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
            if self._observer is not None:
                self._observer.batch_failed(priority, len(rows), error)
            return
        if self._observer is not None:
            waited_s = began_s - min(request.submitted_s for request in run)
            step_s = time.monotonic() - began_s
            self._observer.batch_done(priority, len(rows), step_s, waited_s)
        for request, part in zip(run, done, strict=True):
            request.future.set_result(part)

    def _features(self, request: _EngineRequest) -> list[Tensor]:
        stream = request.stream
        if stream.features is None:
            stream.features = self._transcriber.open_stream()
        features = stream.features
        return [
            features.advance(torch.from_numpy(window).to(self._device), request.new_hops)
            for window in request.windows
        ]


def _device_of(transcriber: Transcriber) -> torch.device:
    """Where the weights are, so that the windows go there too."""
    if isinstance(transcriber, torch.nn.Module):
        for weights in transcriber.parameters():
            return weights.device
    return torch.device("cpu")


def _fail(requests: Sequence[_EngineRequest], error: Exception) -> None:
    """Tell the requests, and let their streams begin anew: their front-end may be half-way."""
    for request in requests:
        request.stream.features = None
        if not request.future.done():
            failure = EngineError(f"the model failed: {error}")
            failure.__cause__ = error
            request.future.set_exception(failure)
