"""A model replica: how long it keeps streams, and what tells its weights apart."""

import numpy as np
import torch

from model import storage
from model.config import WINDOW
from service.cluster.calls import WindowRequest
from service.cluster.model import ModelWorker, weights_digest
from service.engine.batching import Priority
from service.engine.engine import Engine
from tests.fakes import Clock, FakeTranscriber
from tests.service.cluster.replicas import SETTINGS


def request(first: int, stream: str) -> WindowRequest:
    return WindowRequest(
        stream=stream,
        weights="w",
        priority=Priority.LIVE,
        positions=(40, 44),
        new_hops=4,
        first=first,
        count=1,
        samples=np.zeros(WINDOW, np.float32),
    )


async def test_streams_are_forgotten_when_idle_and_when_too_many() -> None:
    clock = Clock()
    settings = SETTINGS.model_copy(update={"max_streams": 2, "stream_idle_s": 5.0})
    with Engine(FakeTranscriber()) as engine:
        worker = ModelWorker(engine, "w", "cpu", settings, clock)
        for name in "abc":
            await worker.predict(request(0, name))
        assert worker.streams == 2
        assert await worker.predict(request(1, "a")) is None
        assert await worker.predict(request(1, "b")) is not None
        clock.now_s += 4
        assert await worker.predict(request(1, "c")) is not None
        clock.now_s += 2
        assert await worker.predict(request(2, "c")) is not None
        assert worker.streams == 1  # b was idle
        clock.now_s += 6
        assert worker.streams == 0  # though nobody came since


def test_weights_of_one_name_are_distinguished() -> None:
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
