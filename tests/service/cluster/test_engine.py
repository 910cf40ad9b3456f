"""The engine of an ingress replica, on model replicas of this process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import WINDOW
from service.cluster.calls import ReplicaLostError
from service.cluster.engine import RemoteEngine
from service.cluster.model import ModelWorker
from service.engine.batching import (
    EngineClosedError,
    EngineError,
    Priority,
    Probabilities,
)
from service.engine.engine import Engine
from service.protocol.options import AudioFormat, Encoding
from service.settings import ClusterSettings
from tests.fakes import FakeStream, FakeTranscriber, play
from tests.service.apps import RATE_HZ, melody, pcm16
from tests.service.cluster.replicas import SETTINGS, LocalReplicas, workers_of
from tests.service.faults.held import wait_until
from tests.service.sessions import hear

AUDIO = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=RATE_HZ)
PATIENCE_S = 60.0
POSITIONS = slice(40, 44)


@asynccontextmanager
async def remote(
    workers: list[ModelWorker], settings: ClusterSettings = SETTINGS
) -> AsyncIterator[tuple[RemoteEngine, LocalReplicas]]:
    replicas = LocalReplicas(workers)
    engine = await RemoteEngine.connect(replicas, settings)
    try:
        yield engine, replicas
    finally:
        engine.close()


def chords(seconds: float) -> bytes:
    """Chords with partials, which a trained network hears as notes."""
    rng = np.random.default_rng(7)
    notes = []
    for beat in np.arange(0.1, seconds - 0.3, 0.4):
        notes += [(int(p), float(beat), float(beat) + 0.35) for p in rng.integers(45, 80, 3)]
    audio = sum(
        play([(pitch + shift, on, off) for pitch, on, off in notes], seconds, RATE_HZ, level)
        for shift, level in ((0, 0.08), (12, 0.04), (19, 0.02))
    )
    return pcm16(np.asarray(audio))


class SlidingStream(FakeStream):
    """Columns that were computed with the first window differ in their last bits from those that
    were computed as the window slid, as the kernels of some processors have it."""

    def __init__(self, kernels: Tensor) -> None:
        super().__init__(kernels)
        self._first = torch.zeros(0)

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        features = super().advance(window, new_hops)
        if not len(self._first):
            self._first = torch.ones(len(features))
        else:
            self._first = torch.cat([self._first[new_hops:], torch.zeros(new_hops)])
        return features * (1 + 1e-3 * self._first[:, None])


class SlidingTranscriber(FakeTranscriber):
    def open_stream(self) -> SlidingStream:
        return SlidingStream(self._kernels)


@pytest.mark.parametrize("priority", list(Priority))
async def test_a_stream_that_changes_replicas_at_every_window_loses_no_bit(
    priority: Priority,
) -> None:
    """Events and frames are those of the single process."""
    pcm = pcm16(melody())
    with Engine(SlidingTranscriber()) as single:
        expected = await hear(single, pcm, AUDIO, sizes=[2_000], priority=priority)
    with workers_of(SlidingTranscriber(), SlidingTranscriber()) as workers:
        async with remote(workers) as (engine, replicas):

            def swap() -> None:
                replicas.workers.reverse()

            heard = await hear(engine, pcm, AUDIO, sizes=[2_000], priority=priority, between=swap)
            assert heard[0] == expected[0] != []
            assert np.array_equal(heard[1], expected[1])
            assert len(set(map(id, replicas.answered))) == 2


async def ask(engine: RemoteEngine, count: int = 1) -> Probabilities:
    stream = engine.open_stream(Priority.LIVE, POSITIONS)
    windows = [np.zeros(WINDOW, np.float32)] * count
    return await asyncio.wrap_future(stream.submit(windows, 4))


async def ask_until_answered(engine: RemoteEngine) -> None:
    """A busy machine may take longer over a request than a test gives it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await ask(engine)
            return
        except EngineError:
            assert time.monotonic() < deadline


async def test_without_an_answer_a_request_fails_and_the_engine_is_not_ready() -> None:
    patience = {"live_timeout_s": 0.02, "max_attempts": 2, "heartbeat_patience_s": 0.1}
    settings = SETTINGS.model_copy(update=patience)
    with workers_of(FakeTranscriber()) as workers:
        async with remote(workers, settings) as (engine, replicas):
            await ask_until_answered(engine)
            await wait_until(lambda: engine.ready)
            replicas.silent = True
            with pytest.raises(EngineError, match=r"no answer in 0\.02 s"):
                await ask(engine)
            await wait_until(lambda: not engine.ready)
            replicas.silent = False
            await wait_until(lambda: engine.ready)
            await ask_until_answered(engine)


async def test_faults_of_replicas_are_tried_again_and_faults_of_the_model_are_not() -> None:
    with workers_of(FakeTranscriber()) as workers:
        settings = SETTINGS.model_copy(update={"heartbeat_s": 60.0, "max_attempts": 3})
        async with remote(workers, settings) as (engine, replicas):
            replicas.faults = [ReplicaLostError("gone"), EngineClosedError("goes down")]
            await ask(engine)
            replicas.faults = [ReplicaLostError("gone") for _ in range(3)]
            with pytest.raises(EngineError, match="gone"):
                await ask(engine)
            replicas.faults = [ReplicaLostError("later"), EngineError("the model failed")]
            with pytest.raises(EngineError, match="the model failed"):
                await ask(engine)
            assert len(replicas.faults) == 1


async def test_streams_stay_with_their_weights_while_some_replica_has_them() -> None:
    old, new = FakeTranscriber(), FakeTranscriber()
    new.card = {"trained": "again"}
    with workers_of(old, new) as workers:
        settings = SETTINGS.model_copy(update={"max_attempts": 30})
        async with remote(workers[:1], settings) as (engine, replicas):
            stream = engine.open_stream(Priority.LIVE, POSITIONS)
            windows = [np.zeros(WINDOW, np.float32)]
            await asyncio.wrap_future(stream.submit(windows, 4))
            replicas.workers = workers  # the upgrade has begun
            for _ in range(10):
                await asyncio.wrap_future(stream.submit(windows, 4))
            assert set(map(id, replicas.answered)) == {id(workers[0])}
            assert engine.card == {}
            replicas.workers = workers[1:]  # and is through
            with pytest.raises(EngineError, match="the weights were replaced"):
                await asyncio.wrap_future(stream.submit(windows, 4))
            await wait_until(lambda: engine.card == {"trained": "again"})
            await ask(engine)
