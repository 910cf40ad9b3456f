"""Tests of workers that exit or fail. The workers are threads, because threads start quickly."""

import asyncio
import concurrent.futures.thread
import gc
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import HEADS, HOP, WINDOW
from rse_transcribe.recordings import running
from service.engine.load import WorkerConfig
from service.engine.local import LocalEngine
from service.engine.segment_memory import SegmentMemory
from service.protocol.errors import ProtocolError
from service.stream import stream as streams
from service.stream.session import LiveSession, SessionOutput
from service.stream.windows import EngineError, PendingWindows, Probabilities
from service.workers import client as clients
from service.workers import pool as pools
from service.workers.client import WorkerClient
from service.workers.pool import WorkerPool
from service.workers.worker import ModelLoaded
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber, GatedTranscriber
from tests.service.apps import chunks, pcm16
from tests.service.streams import random_performance, transcribe_samples
from tests.service.workers.segments import segment
from tests.service.workers.sessions import (
    open_command,
    open_session,
    receive_all,
    running_pool,
    until,
)

SAMPLES = random_performance(FAKE_RATE_HZ, 5, 30.0)


class SettlingStream(FakeStream):
    """Stream that detects nothing in its first window of audio, unless the performance starts
    there. A stream that is restored without pre-roll therefore misses notes."""

    hops_until_settled: int | None = None

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        if self.hops_until_settled is None:
            self.hops_until_settled = WINDOW // HOP if bool(window[0] != 0) else 0
        else:
            self.hops_until_settled -= new_hops
        features = super().advance(window, new_hops, shift)
        return torch.zeros_like(features) if self.hops_until_settled > 0 else features


class SettlingTranscriber(FakeTranscriber):
    def open_stream(self) -> FakeStream:
        return SettlingStream(self._kernels)


def load(name: str, device: str) -> Any:
    return SettlingTranscriber(HEADS)


loads: list[str] = []


def load_once(name: str, device: str) -> Any:
    loads.append(name)
    if len(loads) > 1:
        raise ValueError("no such weights")
    return FakeTranscriber()


gated = GatedTranscriber()


def load_gated(name: str, device: str) -> Any:
    return gated


def load_never(name: str, device: str) -> Any:
    time.sleep(1)


def load_and_interrupt(name: str, device: str) -> Any:
    time.sleep(0.2)  # the main thread waits for the pool then
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(0.2)


def thread_pool(load: Any = load) -> WorkerPool:
    return WorkerPool(WorkerConfig(load=load, model="", device="cpu"), cores=1, processes=False)


async def test_killed_workers_do_not_change_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEGMENT_FRAMES", 512)
    with LocalEngine(load("", "cpu"), workers=1) as engine:
        notes, frames = transcribe_samples(engine, SAMPLES, FAKE_RATE_HZ)
    assert len(notes) > 20
    async with running_pool(thread_pool()) as pool:
        task = asyncio.create_task(
            asyncio.to_thread(transcribe_samples, pool, SAMPLES, FAKE_RATE_HZ)
        )
        for _ in range(2):
            await until(lambda: any(w.segments for w in pool._workers) or task.done())
            pool._workers[0].kill()
            await until(lambda: pool.is_ready)
            await asyncio.sleep(0.1)
        interrupted = await task
    assert np.array_equal(interrupted[1], frames)
    assert interrupted[0] == notes


async def test_failed_worker_is_restarted_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MIN_PAUSE_S", 0.01)
    monkeypatch.setattr(pools, "MAX_PAUSE_S", 0.01)
    loads.clear()
    async with running_pool(thread_pool(load_once)) as pool:
        pool._workers[0].kill()
        while len(loads) < 8:
            await asyncio.sleep(0.001)
            assert len(pool._workers) <= 1
        assert not pool.is_ready
    assert all(task.done() for task in pool._tasks)


async def test_pause_grows_between_workers_that_do_not_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "MIN_PAUSE_S", 0.2)

    async def replacement_s(pool: WorkerPool) -> float:
        started_s = time.monotonic()
        pool._workers[0].kill()
        await until(lambda: not pool.is_ready)
        await until(lambda: pool.is_ready)
        return time.monotonic() - started_s

    async with running_pool(thread_pool()) as pool:
        pauses_s = [await replacement_s(pool) for _ in range(4)]
        for pause_s, minimum_s in zip(pauses_s, (0, 0.2, 0.4, 0.8), strict=True):
            assert pause_s >= minimum_s
        monkeypatch.setattr(pools, "MAX_PAUSE_S", 0.1)
        await asyncio.sleep(0.1)  # this worker lasts
        assert await replacement_s(pool) < 0.8


async def test_worker_that_exits_during_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    start, first = WorkerClient.start, list[WorkerClient]()

    async def start_and_exit(self: WorkerClient, config: WorkerConfig) -> ModelLoaded:
        loaded = await start(self, config)
        if not first:
            first.append(self)
            self.kill()
        return loaded

    monkeypatch.setattr(WorkerClient, "start", start_and_exit)
    async with running_pool(thread_pool()) as pool:
        await until(lambda: pool.is_ready)
        assert pool._workers != first
    assert not [thread for thread in threading.enumerate() if thread.name == "worker"]


async def test_queued_flushes_are_bounded() -> None:
    async with running_pool(thread_pool()) as pool:
        session = open_session(pool, open_command(FAKE_RATE_HZ))
        for _ in range(64):
            assert not session.is_full
            session.flush("a")
        assert session.is_full
        async with asyncio.timeout(60):
            await session.wait_until_writable()


async def pool_with_closed_gate() -> tuple[WorkerPool, PendingWindows]:
    """Return a pool whose worker waits at the gate of its model, and a segment."""
    gated.gate.set()
    pool = thread_pool(load_gated)
    await pool.start()
    gated.close_gate()
    return pool, PendingWindows(np.zeros(WINDOW, np.float32), 1, 8, slice(48, 56))


async def test_cancelled_segments_occupy_the_worker_until_it_has_computed_them() -> None:
    pool, due = await pool_with_closed_gate()
    cancelled = [pool.submit(due) for _ in range(4)]
    (worker,) = pool._workers
    await until(lambda: len(worker.segments) == 2)
    waiting = pool.submit(due)
    for future in cancelled:
        future.cancel()
    await asyncio.sleep(0.1)
    assert len(worker.segments) == 2
    gated.gate.set()
    probabilities = await asyncio.wait_for(asyncio.wrap_future(waiting), 60)
    assert len(probabilities) == 1
    assert pool._workers == [worker]
    await pool.close()


async def test_closed_pool_fails_its_segments() -> None:
    pool, due = await pool_with_closed_gate()
    futures = [pool.submit(due) for _ in range(4)]
    await until(lambda: len(pool._workers[0].segments) == 2)
    closing = asyncio.create_task(pool.close())
    gated.gate.set()
    await closing
    assert all(future.done() for future in futures)
    for future in futures:
        with pytest.raises(EngineError, match="the service has stopped"):
            await asyncio.wait_for(asyncio.wrap_future(future), 60)
    with pytest.raises(EngineError, match="the service has stopped"):
        pool.submit(due)


async def test_pool_closes_while_the_interpreter_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = thread_pool()
    await pool.start()
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)
    await asyncio.wait_for(pool.close(), 10)
    assert not pool._workers


def test_interrupted_start_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    pool = thread_pool(load_and_interrupt)
    with pytest.raises(KeyboardInterrupt), running(pool):
        pass
    assert not pool._workers
    gc.collect()
    assert "Task was destroyed" not in caplog.text


async def test_session_with_failing_output_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = LiveSession.collect_output

    def collect_output(self: LiveSession, now_s: float) -> SessionOutput | None:
        if self.number == 1 and self.stream.frames:
            raise RuntimeError("no output")
        return collect(self, now_s)

    monkeypatch.setattr(LiveSession, "collect_output", collect_output)
    async with running_pool(thread_pool()) as pool:
        failing, other = (open_session(pool, open_command(FAKE_RATE_HZ)) for _ in range(2))
        for chunk in chunks(pcm16(SAMPLES[: 2 * FAKE_RATE_HZ]), FAKE_RATE_HZ):
            failing.send(chunk)
            other.send(chunk)
        other.end("stop")
        with pytest.raises(ProtocolError, match="server"):
            await receive_all(failing, [])
        messages: list[dict[str, Any]] = []
        await receive_all(other, messages)
        assert messages[-1]["type"] == "done"


async def test_worker_that_does_not_load_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_LOAD_S", 0.1)
    pool = thread_pool(load_never)
    with pytest.raises(EngineError, match="did not load"):
        await pool.start()
    await pool.close()


async def test_results_stay_valid_when_their_slots_are_used_again() -> None:
    segments = [segment(10, seed) for seed in range(5)]
    async with running_pool(thread_pool()) as pool:
        results = await asyncio.gather(*[asyncio.wrap_future(pool.submit(due)) for due in segments])
    with LocalEngine(load("", "cpu"), workers=1) as engine:
        for due, result in zip(segments, results, strict=True):
            expected = engine.submit(due).result()
            assert np.array_equal(result, expected)


def open_memories() -> int:
    """Return the number of open descriptors of the workers' memories."""
    gc.collect()  # other tests may have left cycles
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor with which the folder is listed
            targets.append(str(descriptor.readlink()))
    return sum("segments" in target for target in targets)


async def test_replaced_workers_leave_no_memory_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MIN_PAUSE_S", 0.01)
    before = open_memories()
    async with running_pool(thread_pool()) as pool:
        counts = []
        for _ in range(5):
            counts.append(open_memories() - before)
            pool._workers[0].kill()
            await until(lambda: not pool.is_ready)
            await until(lambda: pool.is_ready)
    assert counts == 5 * [counts[0]]
    assert counts[0] > 0


class FailingMemory(SegmentMemory):
    def probabilities(self, slot: int, due: PendingWindows) -> Probabilities:
        raise MemoryError


async def test_segment_whose_result_cannot_be_copied_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clients, "SegmentMemory", FailingMemory)
    monkeypatch.setattr(pools, "MIN_PAUSE_S", 0.01)
    exits: list[None] = []
    pool = thread_pool()
    pool.on_worker_exit = lambda: exits.append(None)
    async with running_pool(pool):
        with pytest.raises(EngineError, match="4 workers exited"):
            await asyncio.wait_for(asyncio.wrap_future(pool.submit(segment(10))), 60)
        await until(lambda: len(exits) == 4)
    assert "cannot handle a worker's reply" in caplog.text
    assert "cannot start a worker" not in caplog.text
