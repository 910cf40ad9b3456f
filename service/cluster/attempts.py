"""Retries requests until a model replica answers: any may be dead, full, or have other weights."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.cluster.calls import Description, ModelReplicas, OtherWeightsError, ReplicaLostError
from service.engine.batching import EngineBusyError, EngineClosedError, EngineError
from service.settings import ClusterSettings

logger = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05  # before the second attempt; twice that before the third, and so on

AnswerT = TypeVar("AnswerT")


async def describe(
    replicas: ModelReplicas, settings: ClusterSettings, wanted: str | None
) -> Description:
    """What a replica runs; of several attempts, preferably one with the wanted weights.

    Raises EngineError if no replica answers.
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
        except (ReplicaLostError, OtherWeightsError, EngineBusyError, EngineClosedError) as error:
            failure = error
        logger.info("retrying on another model replica: %s", failure)
        after_fault()
    raise failure
