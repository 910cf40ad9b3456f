"""A model replica: the front-ends that it keeps, and what tells its weights apart."""

from __future__ import annotations

import asyncio

import numpy as np
import torch

from model import storage
from model.config import HOP, WINDOW
from service.cluster.calls import WindowRequest
from service.cluster.model import ModelWorker, weights_digest
from service.engine.batching import Priority
from service.engine.engine import Engine
from tests.fakes import FakeTranscriber
from tests.service.cluster.replicas import SETTINGS

STEP = 4 * HOP
NOISE = np.random.default_rng(3).normal(0, 0.1, WINDOW + 40 * STEP).astype(np.float32)


def request(first: int, before: int = 0, count: int = 1, stream: str = "a") -> WindowRequest:
    samples = NOISE[(first - before) * STEP : (first + count - 1) * STEP + WINDOW]
    return WindowRequest(
        stream=stream,
        weights="w",
        priority=Priority.LIVE,
        positions=(40, 44),
        new_hops=4,
        first=first,
        count=count,
        samples=samples,
    )


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_stream_goes_on_where_it_was_and_nowhere_else() -> None:
    with Engine(FakeTranscriber()) as engine:
        worker = ModelWorker(engine, "w", "cpu", SETTINGS)
        whole = await worker.predict(request(0, count=20))
        assert whole is not None
        other = ModelWorker(engine, "w", "cpu", SETTINGS)
        assert await other.predict(request(18)) is None  # it knows nothing of the stream
        assert await other.predict(request(18, before=15)) is None  # too little audio
        taken_over = await other.predict(request(18, before=16))
        assert taken_over is not None
        assert np.array_equal(taken_over, whole[18:19])
        following = await other.predict(request(19))
        assert following is not None
        assert np.array_equal(following, whole[19:])
        assert await other.predict(request(19)) is None  # that one is over


async def test_streams_are_forgotten_when_idle_and_when_too_many() -> None:
    clock = Clock()
    settings = SETTINGS.model_copy(update={"max_streams": 2, "stream_idle_s": 5.0})
    with Engine(FakeTranscriber()) as engine:
        worker = ModelWorker(engine, "w", "cpu", settings, clock)
        for name in "abc":
            await worker.predict(request(0, stream=name))
        assert worker.streams == 2
        assert await worker.predict(request(1, stream="a")) is None
        assert await worker.predict(request(1, stream="b")) is not None
        clock.now_s = 4.0
        assert await worker.predict(request(1, stream="c")) is not None
        clock.now_s = 6.0
        assert await worker.predict(request(2, stream="c")) is not None
        assert worker.streams == 1  # b was idle
        clock.now_s = 12.0
        assert worker.streams == 0  # though nobody came since


async def test_the_same_request_twice_at_once_is_answered_twice() -> None:
    with Engine(FakeTranscriber()) as engine:
        worker = ModelWorker(engine, "w", "cpu", SETTINGS)
        first, second = await asyncio.gather(*[worker.predict(request(0)) for _ in range(2)])
        assert first is not None
        assert second is not None
        assert np.array_equal(first, second)
        assert worker.streams == 1
        assert await worker.predict(request(1)) is not None


def test_weights_of_one_name_are_told_apart() -> None:
    network = storage.load("live")
    digest = weights_digest(network)
    assert weights_digest(storage.load("live")) == digest
    with torch.no_grad():
        next(iter(network.parameters())).view(-1)[0] += 1e-3
    assert weights_digest(network) != digest
    other = FakeTranscriber()
    same = weights_digest(other)
    assert weights_digest(FakeTranscriber()) == same
    other.card = {"min_note_frames": 3}
    assert weights_digest(other) != same
