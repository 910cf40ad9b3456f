"""A model replica of a cluster: an engine, and the state of the streams that it serves.

A request carries whole windows. The replica that served the stream's last request continues from
its state; any other runs a fresh front-end over the preceding audio and gives the same bits.
"""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from service.cluster.calls import Description, OtherWeightsError, WindowRequest, refill_windows
from service.engine.batching import Probabilities, Window
from service.engine.interface import EngineLike, EngineModel, EngineStreamLike
from service.ops.health import version_of
from service.settings import ClusterSettings


def weights_digest(transcriber: EngineModel) -> str:
    """Digest of a network: configuration, card, tensors, device type, and the versions of this
    package and torch.

    Device and versions count because frames may differ in their last bits.
    """
    digest = hashlib.sha256(f"{version_of('rse-transcribe')} {torch.__version__}".encode())
    digest.update(json.dumps(transcriber.config.to_json(), sort_keys=True).encode())
    digest.update(json.dumps(transcriber.card, sort_keys=True, default=str).encode())
    if isinstance(transcriber, torch.nn.Module):
        for name, tensor in sorted(transcriber.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tensor.device.type}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@dataclass(slots=True)
class _Held:
    stream: EngineStreamLike
    next: int  # number of the next window
    used_s: float


class ModelWorker:
    """Answers requests with an engine of its own process; used from one event loop."""

    def __init__(
        self,
        engine: EngineLike,
        weights: str,
        device: str,
        settings: ClusterSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """weights: digest of the engine's network."""
        self.engine = engine
        self.description = Description(
            weights=weights,
            config=engine.config,
            card=dict(engine.card),
            settings=engine.settings,
            device=device,
        )
        self._settings = settings
        self._clock = clock
        self._held: dict[str, _Held] = {}  # the least recently used first

    @property
    def streams(self) -> int:
        self._forget_idle()
        return len(self._held)

    async def describe(self) -> Description:
        return self.description

    async def load(self) -> float:
        """Number of streams, for choosing a replica; infinite if the engine hangs."""
        hangs = self.engine.heartbeat_age_s > self._settings.live_timeout_s
        return math.inf if hangs else self.streams

    async def predict(self, request: WindowRequest) -> Probabilities | None:
        """Probabilities [count, heads, positions, PITCHES]; None if the stream is not held here and
        the samples do not reach back far enough.

        Raises:
            OtherWeightsError: the stream began with other weights.
            EngineError: the model failed.
        """
        if request.weights != self.description.weights:
            raise OtherWeightsError("the weights were replaced")
        self._forget_idle()
        windows = request.windows
        # Removed while in use, so that a retry of the same request finds no half-updated state.
        held = self._held.pop(request.stream, None)
        if held is not None and held.next == request.first:
            stream, windows = held.stream, windows[-request.count :]
        else:
            if held is not None:
                held.stream.close()
            before = len(windows) - request.count
            refill = refill_windows(self.description.config, request.new_hops)
            if before < min(request.first, refill):
                return None
            stream = self.engine.open_stream(request.priority, slice(*request.positions))
        try:
            answer = await self._run(stream, windows, request)
        except BaseException:
            stream.close()
            raise
        if request.stream in self._held:
            stream.close()  # a retry of the same request was quicker
            return answer
        self._held[request.stream] = _Held(stream, request.first + request.count, self._clock())
        if len(self._held) > self._settings.max_streams:
            self._forget(next(iter(self._held)))
        return answer

    async def _run(
        self, stream: EngineStreamLike, windows: list[Window], request: WindowRequest
    ) -> Probabilities:
        """Runs all windows; returns those of the wanted ones."""
        most = self.engine.settings.limit(request.priority)
        parts: list[Probabilities] = []
        for start in range(0, len(windows), most):
            future = stream.submit(windows[start : start + most], request.new_hops, request.shift)
            parts.append(await asyncio.wrap_future(future))
        return np.concatenate(parts)[-request.count :]

    def _forget_idle(self) -> None:
        oldest_s = self._clock() - self._settings.stream_idle_s
        while self._held and next(iter(self._held.values())).used_s < oldest_s:
            self._forget(next(iter(self._held)))

    def _forget(self, name: str) -> None:
        self._held.pop(name).stream.close()
