"""Workers that exit at bad moments: threads here, because these start quickly."""

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import HEADS, HOP, WINDOW
from service.engine.local import LocalEngine
from service.protocol.errors import ProtocolError
from service.stream import stream as streams
from service.stream.windows import EngineError
from service.workers import connection
from service.workers import pool as pools
from service.workers.messages import SessionOutput, WorkerConfig
from service.workers.pool import WorkerPool
from service.workers.session import LiveSession
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber
from tests.service.apps import chunks, pcm16
from tests.service.streams import random_performance, transcribe_samples
from tests.service.workers.sessions import opening, receive_all, until

SAMPLES = random_performance(FAKE_RATE_HZ, 5, 30.0)


class Remembering(FakeStream):
    """Detect nothing before a window of audio was received, unless the performance starts here."""

    unsettled: int | None = None

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        if self.unsettled is None:
            self.unsettled = WINDOW // HOP if bool(window[0] != 0) else 0
        else:
            self.unsettled -= new_hops
        heard = super().advance(window, new_hops, shift)
        return torch.zeros_like(heard) if self.unsettled > 0 else heard


class RememberingTranscriber(FakeTranscriber):
    def open_stream(self) -> FakeStream:
        return Remembering(self._kernels)


def load(name: str, device: str) -> Any:
    return RememberingTranscriber(HEADS)


loads: list[str] = []


def load_once(name: str, device: str) -> Any:
    loads.append(name)
    if len(loads) > 1:
        raise ValueError("no such weights")
    return FakeTranscriber()


def load_never(name: str, device: str) -> Any:
    time.sleep(1)


def threaded(load: Any = load) -> WorkerPool:
    return WorkerPool(WorkerConfig(load=load, model="", device="cpu"), cores=1, processes=False)


async def test_a_recording_goes_on_in_another_worker_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "SEGMENT_FRAMES", 512)
    with LocalEngine(load("", "cpu"), workers=1) as engine:
        notes, frames = transcribe_samples(engine, SAMPLES, FAKE_RATE_HZ)
    assert len(notes) > 20
    pool = threaded()
    await pool.start()
    task = asyncio.create_task(asyncio.to_thread(transcribe_samples, pool, SAMPLES, FAKE_RATE_HZ))
    for _ in range(2):
        await until(lambda: pool._segments._computing or task.done())
        pool._workers[0].kill()
        await until(lambda: pool.is_ready)
        await asyncio.sleep(0.1)
    killed = await task
    await pool.close()
    assert np.array_equal(killed[1], frames)
    assert killed[0] == notes


async def test_one_start_at_a_time_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(pools, "MAX_PAUSE_S", 0.01)
    loads.clear()
    pool = threaded(load_once)
    await pool.start()
    pool._workers[0].kill()
    while len(loads) < 8:
        await asyncio.sleep(0.001)
        assert len(pool._workers) <= 1
    assert not pool.is_ready
    await pool.close()
    assert pool._tasks == set()


async def test_a_worker_that_ends_while_others_load_is_replaced() -> None:
    pool = threaded()
    gate, loading = asyncio.Event(), pool._launch

    async def slow(own_process: bool) -> Any:
        hello = await loading(own_process)
        pool._workers[0].kill()
        await until(lambda: not pool._workers[0].is_ready)
        gate.set()
        return hello

    pool._launch = slow  # type: ignore[method-assign]
    starting = asyncio.create_task(pool.start())
    await gate.wait()
    pool._launch = loading  # type: ignore[method-assign]
    await starting
    await until(lambda: pool.is_ready)
    await pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker"]


async def test_a_client_cannot_pile_up_flushes() -> None:
    pool = threaded()
    await pool.start()
    session = pool.open_session(opening(FAKE_RATE_HZ))
    for _ in range(64):
        assert not session.is_full
        session.flush("a")
    assert session.is_full
    async with asyncio.timeout(60):
        await session.wait_until_writable()
    await pool.close()


async def test_a_session_that_cannot_speak_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = LiveSession.collect_output

    def collect_output(self: LiveSession, now_s: float) -> SessionOutput | None:
        if self.number == 1 and self.stream.frames:
            raise RuntimeError("no words")
        return collect(self, now_s)

    monkeypatch.setattr(LiveSession, "collect_output", collect_output)
    pool = threaded()
    await pool.start()
    mute, other = (pool.open_session(opening(FAKE_RATE_HZ)) for _ in range(2))
    for chunk in chunks(pcm16(SAMPLES[: 2 * FAKE_RATE_HZ]), FAKE_RATE_HZ):
        mute.send(chunk)
        other.send(chunk)
    other.end("stop")
    with pytest.raises(ProtocolError, match="server"):
        await receive_all(mute, [])
    messages: list[dict[str, Any]] = []
    await receive_all(other, messages)
    assert messages[-1]["type"] == "done"
    await pool.close()


async def test_a_worker_that_stops_while_it_loads_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_LOAD_S", 0.1)
    pool = threaded(load_never)
    with pytest.raises(EngineError, match="did not load"):
        await pool.start()
    await pool.close()
