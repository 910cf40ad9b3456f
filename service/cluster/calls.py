"""Messages between ingress and model replicas; pickled, so both must run the same release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, WINDOW, ModelConfig
from service.engine.batching import EngineError, EngineSettings, Priority, Probabilities


class ReplicaLostError(EngineError):
    """The replica has died, is full or cannot be reached; another one may answer."""


class OtherWeightsError(EngineError):
    """The replica that was asked has other weights than the stream began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a model replica runs.

    Attributes:
        weights: digest of the network; two replicas with the same give the same frames.
        device: torch's name of it.
    """

    weights: str
    config: ModelConfig
    card: Mapping[str, Any]
    settings: EngineSettings
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRequest:
    """Windows of one stream, oldest first.

    Attributes:
        stream: name of it, unique in the cluster.
        weights: digest of those that the stream began with.
        positions: that are wanted, as a slice's start and stop.
        new_hops: hops from each window to the next.
        first: number in the stream of the first window that is wanted.
        count: windows that are wanted.
        samples: float32; the wanted windows as one piece of audio, or that of earlier ones too.
    """

    stream: str
    weights: str
    priority: Priority
    positions: tuple[int, int]
    new_hops: int
    first: int
    count: int
    samples: NDArray[np.float32]

    @property
    def windows(self) -> list[NDArray[np.float32]]:
        """All windows of the samples, [WINDOW] each, as views of a copy."""
        samples = np.array(self.samples)  # what comes out of a message cannot be written to
        step = self.new_hops * HOP
        return [
            samples[start : start + WINDOW] for start in range(0, len(samples) - WINDOW + 1, step)
        ]


def refill_windows(config: ModelConfig, new_hops: int) -> int:
    """Windows before one after which a fresh front-end gives its bits."""
    return -(-config.refill_hops // new_hops)


class ModelReplicas(Protocol):
    """The way to the model replicas: each call goes to one of them.

    Calls with the same route go to the same replica as long as it is there. They raise
    ReplicaLostError where it is gone or cannot take more, and whatever EngineError it raises.
    """

    async def predict(self, request: WindowRequest, route: str) -> Probabilities | None:
        """Probabilities [count, heads, positions, PITCHES]; None where the replica does not know
        the stream and the samples do not reach back far enough."""
        ...

    async def describe(self, route: str) -> Description:
        """What the replica runs."""
        ...

    async def load(self, route: str) -> float:
        """Streams that the replica has at present; infinitely many where it hangs."""
        ...
