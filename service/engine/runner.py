"""What an engine needs from a model on its device, and how it plans to use the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from model.config import ModelConfig
from model.transcriber import FeatureStream
from service.engine.batching import EngineSettings, Probabilities, Window

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


class Transcriber(Protocol):
    """What the engine needs from ``model.transcriber.TranscriptionModel``."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def card(self) -> Mapping[str, Any]: ...

    def open_stream(self) -> FeatureStream: ...

    def predict_features(self, features: Tensor) -> Tensor: ...


class Runner(Protocol):
    """A model on its device. Streams and predictions may be used from several threads."""

    @property
    def batches_pay(self) -> bool:
        """Whether waiting for a larger batch pays off."""
        ...

    @property
    def threads(self) -> int | None:
        """Cores of the single worker before ``plan``; None keeps the default."""
        ...

    def open_stream(self, positions: slice) -> FeatureStream:
        """Front-end state of a new stream read at these positions; used by one thread at a time."""
        ...

    def rows(self, stream: FeatureStream, windows: Sequence[Window], new_hops: int) -> list[Tensor]:
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
    times_s = []
    for _ in range(_TIMED_RUNS):
        began_s = clock()
        work()
        times_s.append(clock() - began_s)
    return 1000 * max(min(times_s), 1e-6)
