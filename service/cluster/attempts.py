"""Asks model replicas until one answers: any may be dead, full, or have other weights."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.cluster.calls import Description, ModelReplicas, OtherWeightsError, ReplicaLostError
from service.cluster.settings import ClusterSettings
from service.engine.batching import EngineBusyError, EngineClosedError, EngineError

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


async def describe(
    replicas: ModelReplicas, settings: ClusterSettings, wanted: str | None
) -> Description:
    """What a replica runs: one with the wanted weights, where one of some routes has them.

    Raises EngineError where no replica answers.
    """
    found: Description | None = None

    async def ask() -> Description:
        nonlocal found
        found = await replicas.describe(secrets.token_hex(8))
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
    """The first answer of a replica that can give one; raises why the last one gave none.

    A fault of the model itself is not tried again: it would fail the next replica too.
    """
    failure: EngineError = ReplicaLostError("no replica was asked")
    for attempt in range(settings.max_attempts):
        if not isinstance(failure, OtherWeightsError):  # whose replica is well
            await asyncio.sleep(attempt * settings.retry_pause_s)
        try:
            async with asyncio.timeout(timeout_s):
                return await ask()
        except TimeoutError:
            failure = ReplicaLostError(f"no answer in {timeout_s:g} s")
        except (ReplicaLostError, OtherWeightsError, EngineBusyError, EngineClosedError) as error:
            failure = error
        logger.info("another model replica is asked: %s", failure)
        after_fault()
    raise failure
