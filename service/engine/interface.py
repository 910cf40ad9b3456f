"""What sessions and endpoints need of an engine, wherever it runs.

``service.engine.engine.Engine`` runs the model in a thread of this process. Another transport (a
separate process, a cluster) can implement the same few calls, as a request carries everything
needed: whole windows, and how far each slid since the one before. An engine that has lost the
stream's front-end state computes the whole window and gives the same notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from model.config import ModelConfig
from service.engine.batching import EngineSettings, Priority, Probabilities, Window


class EngineStreamLike(Protocol):
    """One stream's place in an engine."""

    @property
    def depth(self) -> int:
        """Windows of a recording to have unanswered, so that no core idles."""
        ...

    def submit(self, windows: Sequence[Window], new_hops: int) -> Future[Probabilities]:
        """Request the probabilities of the stream's next windows, oldest first.

        Args:
            windows: float32, [WINDOW] each; they must not change until the future is done.
            new_hops: hops from each window to the next, and to the first from the stream's last.

        Returns:
            A future of float32 [windows, heads, positions, PITCHES]. It fails with EngineError.

        Raises:
            EngineBusyError: too many windows are waiting; nothing was taken.
            EngineClosedError: the engine accepts no more work.
            ValueError: no windows, or more than a batch holds.
        """
        ...

    def close(self) -> None:
        """Give up the place; safe to call twice."""
        ...


class EngineLike(Protocol):
    """The owner of a model, local or remote. Everything may be called from any thread."""

    @property
    def config(self) -> ModelConfig:
        """The model's dimensions, rate and heads."""
        ...

    @property
    def card(self) -> Mapping[str, Any]:
        """The card of the model's weights."""
        ...

    @property
    def settings(self) -> EngineSettings:
        """Limits of requests and of the queue."""
        ...

    @property
    def ready(self) -> bool:
        """Warmed up, alive and not closed."""
        ...

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the last sign of life of the worker that has been silent longest."""
        ...

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

    def batch_failed(self, priority: Priority, windows: int, error: Exception) -> None:
        """A batch failed."""
        ...
