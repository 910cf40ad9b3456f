"""Runs inference in threads of this process, for the library, evaluation and the command line."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np

from model.config import ModelConfig
from model.transcriber import FeatureStream
from service.engine.load import available_cores
from service.engine.runners import (
    EngineModel,
    compute,
    configure_torch_thread,
    device_of,
    make_runner,
)
from service.stream.windows import (
    MAX_WINDOWS_PER_BATCH,
    EngineError,
    PendingWindows,
    Probabilities,
)

_CLOSED = "the engine is closed"
T = TypeVar("T")


class LocalEngine:
    """``InferenceEngine`` in this process. ``workers`` is the number of threads: by default one per
    CPU core, or 1 if the model is on a GPU."""

    def __init__(self, transcriber: EngineModel, workers: int | None = None) -> None:
        self.config: ModelConfig = transcriber.config
        self.card: Mapping[str, Any] = transcriber.card
        self._runner = make_runner(transcriber)
        on_cpu = device_of(transcriber).type == "cpu"
        self.workers = workers or (available_cores() if on_cpu else 1)
        self._closed = False
        self._pool = ThreadPoolExecutor(self.workers, "compute", configure_torch_thread)

    def submit(self, segment: PendingWindows) -> Future[Probabilities]:
        return self._submit(self._compute_segment, segment)

    def close(self) -> None:
        """Fail queued segments with EngineError, wait for running ones, and stop the threads."""
        self._closed = True
        self._pool.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_stream(self) -> FeatureStream:
        """Return the state of a new live stream, for ``compute``."""
        return self._runner.open_stream()

    def compute(self, stream: FeatureStream, due: PendingWindows) -> Probabilities:
        """Return the probabilities of a live stream's next windows. Raises EngineError."""
        return self._submit(compute, self._runner, stream, due).result()

    def _submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        try:
            return self._pool.submit(self._run, function, *arguments)
        except RuntimeError as error:
            raise EngineError(_CLOSED) from error

    def _run(self, function: Callable[..., T], *arguments: object) -> T:
        if self._closed:
            raise EngineError(_CLOSED)
        try:
            return function(*arguments)
        except Exception as error:
            raise EngineError(f"the model failed: {error}") from error

    def _compute_segment(self, segment: PendingWindows) -> Probabilities:
        stream = self._runner.open_stream()
        starts = range(0, segment.preroll + segment.windows, MAX_WINDOWS_PER_BATCH)
        parts = [
            compute(self._runner, stream, segment.subset(start, MAX_WINDOWS_PER_BATCH))
            for start in starts
        ]
        return np.concatenate([part for part in parts if len(part)])
