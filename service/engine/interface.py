"""What sessions need of an engine, wherever it runs, and an engine of a model on its device.

``service.engine.engine.Engine`` runs the model in threads of this process or in processes that it
starts. Another transport (a cluster) can implement the same few calls, as a request carries
everything needed: whole windows, and how far each slid since the one before. An engine that has
lost the stream's front-end state computes the whole window; its probabilities differ slightly until
``ModelConfig.refill_hops`` hops have passed.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from model.config import ModelConfig
from model.transcriber import FeatureStream
from service.engine.batching import EngineSettings, Priority, Probabilities, Window

_TIMED_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an engine uses its machine.

    Attributes:
        workers: concurrent batches.
        threads: cores per worker; None keeps the default.
        batch_windows: maximum windows per batch.
    """

    workers: int
    threads: int | None
    batch_windows: int


class EngineModel(Protocol):
    """What the engine needs from ``model.transcriber.TranscriptionModel``."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    def open_stream(self) -> FeatureStream: ...
    def predict_features(self, features: Tensor) -> Tensor: ...


class Runner(Protocol):
    """A model on its device. Streams and predictions may be used from several threads.

    Attributes:
        batches_pay: waiting for a larger batch pays off.
        threads: cores of the single worker before ``plan``; None keeps the default.
    """

    @property
    def batches_pay(self) -> bool: ...
    @property
    def threads(self) -> int | None: ...

    def open_stream(self, positions: slice) -> FeatureStream:
        """Front-end state of a new stream read at these positions; used by one thread at a time."""
        ...

    def rows(
        self, stream: FeatureStream, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> list[Tensor]:
        """The stream's next rows for ``predict``, one for each window."""
        ...

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Rows to probabilities [rows, heads, positions, PITCHES], float32."""
        ...

    def plan(self, settings: EngineSettings) -> Plan:
        """How to use the machine, by measurement; takes as long as a few windows."""
        ...


def least_ms(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """The shortest of several runs: the first does extra work, and the machine may be shared."""
    times_s = timeit.repeat(work, timer=clock, repeat=_TIMED_RUNS, number=1)
    return 1000 * max(min(times_s), 1e-6)


class EngineStreamLike(Protocol):
    """One stream's place in an engine.

    Attributes:
        depth: windows of a recording to have unanswered, so that no core idles.
    """

    @property
    def depth(self) -> int: ...

    def submit(
        self, windows: Sequence[Window], new_hops: int, shift: int = 0
    ) -> Future[Probabilities]:
        """Request the probabilities of the stream's next windows, oldest first.

        Args:
            windows: float32, [WINDOW] each; they must not change until the future is done.
            new_hops: hops from each window to the next, and to the first from the stream's last.
            shift: see ``model.transcriber.FeatureStream``.

        Returns:
            A future of float32 [windows, heads, positions, PITCHES]. It fails with EngineError.

        Raises:
            EngineClosedError: the engine accepts no more work.
            ValueError: no windows, or more than a batch holds.
        """
        ...

    def close(self) -> None:
        """Give up the place; safe to call twice."""
        ...


class EngineLike(Protocol):
    """The owner of a model, local or remote. Everything may be called from any thread.

    Attributes:
        config: the model's dimensions, rate and heads.
        card: of the model's weights.
        settings: limits of requests.
        ready: warmed up, alive (with worker processes, at least one) and not closed.
        heartbeat_age_s: seconds since the last sign of life of the worker that has been silent
            longest; many mean that it hangs.
    """

    config: ModelConfig
    card: Mapping[str, Any]
    settings: EngineSettings

    @property
    def ready(self) -> bool: ...
    @property
    def heartbeat_age_s(self) -> float: ...

    def open_stream(self, priority: Priority, positions: slice) -> EngineStreamLike:
        """Register a stream whose answers hold these of the model's FRAMES positions.

        Raises EngineClosedError.
        """
        ...

    def close(self, timeout_s: float = 10.0) -> None:
        """Fail waiting requests, accept no more, and wait up to ``timeout_s`` for the workers;
        idempotent."""
        ...

    def abandon(self) -> None:
        """Fail waiting and running requests and accept no more, without waiting."""
        ...


class EngineObserver(Protocol):
    """Observes batches on the worker's thread: must be quick and must not raise."""

    def batch_done(self, priority: Priority, windows: int, step_s: float, waited_s: float) -> None:
        """A batch ran for ``step_s`` seconds, after its oldest request waited ``waited_s``."""
        ...

    def batch_failed(self, priority: Priority) -> None: ...
