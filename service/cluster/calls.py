"""Calls between ingress and model replicas.

Messages are pickled, so both must run the same release. Requests are retried until a replica
answers: any may be dead, full, or have other weights.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from model.config import HOP, WINDOW, ModelConfig
from service.engine.batching import (
    EngineClosedError,
    EngineError,
    EngineSettings,
    Priority,
)
from service.settings import ClusterSettings

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05  # before the second attempt; twice that before the third, and so on

AnswerT = TypeVar("AnswerT")

CallReplica = Callable[..., Awaitable[Any]]
"""Calls a method of a ``service.cluster.model.ModelWorker``: route, name of the method, arguments.

Calls with the same route go to the same replica while it exists. They raise ReplicaLostError if it
is gone or full, and any EngineError that it raises.
"""


class ReplicaLostError(EngineError):
    """The replica is dead, full or unreachable; another one may answer."""


class OtherWeightsError(EngineError):
    """The replica's weights differ from those the stream began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a model replica runs.

    Attributes:
        weights: digest of the network; replicas with the same digest give the same frames.
        device: as torch names it.
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
        stream: its name, unique in the cluster.
        weights: digest of the weights that the stream began with.
        positions: start and stop of the wanted positions.
        new_hops: hops from each window to the next.
        first: number in the stream of the first wanted window.
        count: number of wanted windows.
        samples: float32; the audio of the wanted windows, optionally with earlier windows.
        shift: of the wanted windows; one that lacks its state reads earlier ones alike.
    """

    stream: str
    weights: str
    priority: Priority
    positions: tuple[int, int]
    new_hops: int
    first: int
    count: int
    samples: NDArray[np.float32]
    shift: int = 0

    @property
    def windows(self) -> list[NDArray[np.float32]]:
        """All windows of the samples, [WINDOW] each, as views of a copy."""
        samples = np.array(self.samples)  # arrays from a message are read-only
        every = sliding_window_view(samples, WINDOW, writeable=True)
        return list(every[:: self.new_hops * HOP])


def refill_windows(config: ModelConfig, new_hops: int) -> int:
    """Preceding windows that bring a fresh front-end to the same bits."""
    return -(-config.refill_hops // new_hops)


async def describe(call: CallReplica, settings: ClusterSettings, wanted: str | None) -> Description:
    """What a replica runs; of several attempts, preferably one with the wanted weights.

    Raises EngineError if no replica answers.
    """
    found: Description | None = None

    async def ask() -> Description:
        nonlocal found
        found = await call(secrets.token_hex(8), "describe")
        if wanted is not None and found.weights != wanted:
            raise OtherWeightsError("the weights were replaced")
        return found

    try:
        return await attempts(ask, lambda: None, settings.live_timeout_s, settings)
    except EngineError:
        if found is None:
            raise
        return found


async def attempts(
    ask: Callable[[], Awaitable[AnswerT]],
    after_fault: Callable[[], None],
    timeout_s: float,
    settings: ClusterSettings,
) -> AnswerT:
    """The first answer of any replica. Raises the failure of the last attempt.

    A fault of the model itself is not retried: it would recur on the next replica.
    """
    failure: EngineError = ReplicaLostError("no replica was asked")
    for attempt in range(settings.max_attempts):
        if not isinstance(failure, OtherWeightsError):  # then the replica itself is healthy
            await asyncio.sleep(attempt * RETRY_PAUSE_S)
        try:
            async with asyncio.timeout(timeout_s):
                return await ask()
        except TimeoutError:
            failure = ReplicaLostError(f"no answer in {timeout_s:g} s")
        except (ReplicaLostError, OtherWeightsError, EngineClosedError) as error:
            failure = error
        logger.info("retrying on another model replica: %s", failure)
        after_fault()
    raise failure
