"""What sessions and endpoints need of an engine, wherever it runs.

``service.engine.engine.Engine`` runs the model in a thread of this process. Another transport (a
process of its own, a cluster) can stand behind the same few calls, as a request carries all that it
needs: the windows whole, and how far each slid since the one before. Whoever lost the stream's
front-end state computes the whole window and gives the same notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from model.config import ModelConfig
from service.engine.batching import EngineSettings, Priority, Probabilities, Window


class EngineStreamLike(Protocol):
    """One stream's place in an engine."""

    def submit(self, windows: Sequence[Window], new_hops: int) -> Future[Probabilities]:
        """Ask for the probabilities of the stream's next windows, oldest first.

        Args:
            windows: float32, [WINDOW] each; they stay as they are until the future is done.
            new_hops: hops from each window to the next, and to the first from the stream's last.

        Returns:
            A future of float32 [windows, heads, positions, PITCHES]. It fails with EngineError.

        Raises:
            EngineBusyError: too many windows wait; nothing was taken.
            EngineClosedError: the engine takes no more work.
            ValueError: no windows, or more than a batch holds.
        """
        ...

    def close(self) -> None:
        """Give up the place; safe to call twice."""
        ...


class EngineLike(Protocol):
    """The owner of a model, or the way to it. All of it may be called from any thread."""

    @property
    def config(self) -> ModelConfig:
        """The model's dimensions, rate and heads."""
        ...

    @property
    def card(self) -> Mapping[str, Any]:
        """What the model's checkpoint says of itself."""
        ...

    @property
    def settings(self) -> EngineSettings:
        """Bounds of requests and of the queue."""
        ...

    @property
    def ready(self) -> bool:
        """Warmed up, alive and not closed."""
        ...

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the worker that is longest silent showed that it lives."""
        ...

    def open_stream(self, priority: Priority, positions: slice) -> EngineStreamLike:
        """A place for a stream whose requests are answered with these of the model's FRAMES
        positions. Raises EngineClosedError."""
        ...

    def close(self, timeout_s: float = 10.0) -> None:
        """Fail what waits, take nothing more and wait so long for each worker; safe to call
        twice."""
        ...

    def abandon(self) -> None:
        """Fail what waits and what is being computed, take nothing more, wait for nobody."""
        ...


class EngineObserver(Protocol):
    """Is told of the worker's batches, from the worker's thread: it must be quick and not raise."""

    def batch_done(self, priority: Priority, windows: int, step_s: float, waited_s: float) -> None:
        """A batch has run: the seconds it took, and those its oldest request waited before."""
        ...

    def batch_failed(self, priority: Priority, windows: int, error: Exception) -> None:
        """A batch has failed; its requests know already."""
        ...
