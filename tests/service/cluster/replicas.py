"""Model replicas of this process, which a test takes away."""

import asyncio
import hashlib
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from service.cluster.model import ModelWorker, weights_digest
from service.engine.batching import EngineError
from service.engine.engine import Engine
from service.engine.interface import EngineModel
from service.settings import ClusterSettings

# A machine that does much else may leave a stream alone for long, and take long over a request.
SETTINGS = ClusterSettings(
    live_timeout_s=600, heartbeat_s=0.01, heartbeat_patience_s=600, stream_idle_s=3600
)


class LocalReplicas:
    """A ``service.cluster.calls.CallReplica``; messages are pickled on the way."""

    def __init__(self, workers: list[ModelWorker]) -> None:
        self.workers = workers
        self.answered: list[ModelWorker] = []  # who answered requests, in order
        self.faults: list[EngineError] = []  # raised by the next requests
        self.silent = False  # no call is answered

    async def __call__(self, route: str, method: str, *arguments: object) -> Any:
        if self.silent:
            await asyncio.Event().wait()
        digest = hashlib.sha256(route.encode()).digest()
        worker = self.workers[int.from_bytes(digest) % len(self.workers)]
        if method != "predict":
            return await getattr(worker, method)()
        if self.faults:
            raise self.faults.pop()
        answer = await worker.predict(*pickle.loads(pickle.dumps(arguments)))
        self.answered.append(worker)
        return answer


@contextmanager
def workers_of(*transcribers: EngineModel) -> Iterator[list[ModelWorker]]:
    """A replica for each; closed at the end."""
    with ExitStack() as stack:
        workers = []
        for transcriber in transcribers:
            engine = stack.enter_context(Engine(transcriber))
            workers.append(ModelWorker(engine, weights_digest(transcriber), "cpu", SETTINGS))
        yield workers
