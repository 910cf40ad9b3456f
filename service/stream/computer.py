"""What a recording needs of whatever computes its windows: this process, or others."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig
from service.stream.windows import Due

Probabilities = NDArray[np.float32]  # [windows, heads, positions, PITCHES]


class EngineError(RuntimeError):
    """The model failed, or nobody is there to run it."""


class Computer(Protocol):
    """Computes segments of recordings, several at once.

    Attributes:
        config, card: of the model.
        workers: segments computed at once.
    """

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def workers(self) -> int: ...

    def submit(self, segment: Due) -> Future[Probabilities]:
        """The probabilities of a segment, whose samples are copied; fails with EngineError."""
        ...
