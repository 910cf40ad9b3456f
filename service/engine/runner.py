"""What an engine needs of a model on its device, and how it plans to use its machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from model.config import ModelConfig
from service.engine.batching import EngineSettings, Probabilities

_TIMED_RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How an engine uses its machine.

    Attributes:
        workers: batches at a time.
        threads: cores for each; None leaves them as they are.
        batch_windows: windows of a batch at most.
    """

    workers: int
    threads: int | None
    batch_windows: int


class FeatureStream(Protocol):
    """Front-end state of one stream (see ``model.transcriber``)."""

    def advance(self, window: Tensor, new_hops: int) -> Tensor: ...


class Transcriber(Protocol):
    """What the engine needs of ``model.transcriber.TranscriptionModel``."""

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
        """Whether it is worth a pause to make a batch larger."""
        ...

    @property
    def threads(self) -> int | None:
        """Cores of the one worker that there is before the plan; None leaves them as they are."""
        ...

    def open_stream(self, positions: slice) -> FeatureStream:
        """Front-end state of a new stream that is read there; used by one thread at a time."""
        ...

    def row(self, stream: FeatureStream, window: NDArray[np.float32], new_hops: int) -> Tensor:
        """The stream's next row for ``predict``."""
        ...

    def predict(self, rows: Sequence[Tensor], positions: slice) -> Probabilities:
        """Rows to probabilities [rows, heads, positions, PITCHES], float32."""
        ...

    def plan(self, settings: EngineSettings) -> Plan:
        """How to use the machine, found by trying; takes as long as some windows."""
        ...


def least_ms(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """The quickest of some runs: the first has more to do, and others may use the machine."""
    times_s = []
    for _ in range(_TIMED_RUNS):
        began_s = clock()
        work()
        times_s.append(clock() - began_s)
    return 1000 * max(min(times_s), 1e-6)
