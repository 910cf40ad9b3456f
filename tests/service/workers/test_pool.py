"""Tests of a pool whose workers are processes."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rse_transcribe.recordings import running
from service.engine.load import WorkerConfig
from service.engine.local import LocalEngine
from service.protocol.checkpoint import Checkpoint
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.windows import EngineError
from service.workers.pool import WorkerPool
from tests.benchmarks.machine import process_tree
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber
from tests.service.apps import RATE_HZ, chunks, pcm16
from tests.service.serve_fake import load
from tests.service.streams import random_performance, transcribe_samples
from tests.service.workers.sessions import (
    events,
    open_command,
    open_session,
    receive_all,
    running_pool,
    until,
)

pytestmark = pytest.mark.timeout(300)
SAMPLES = random_performance(RATE_HZ, 5, 6.0)
PCM = pcm16(SAMPLES)
CONFIG = WorkerConfig(load=load, model="all", device="cpu")


def worker_processes() -> list[int]:
    """Return the process IDs of the workers, without other children of this process."""
    commands = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in process_tree(os.getpid())[1:]
    }
    return [pid for pid, command in commands.items() if b"service.workers.worker" in command]


async def perform(
    pool: WorkerPool,
    messages: list[dict[str, Any]],
    resume: Checkpoint | None = None,
    kill_at_chunk: int = -1,
) -> None:
    """Run a session and append its messages. Kill all workers before the chunk
    ``kill_at_chunk``."""
    session = open_session(pool, open_command(RATE_HZ, resume=resume))
    start = 2 * resume.from_sample if resume else 0
    receiving = asyncio.create_task(receive_all(session, messages))
    for number, chunk in enumerate(chunks(PCM[start:], 3_001)):
        if number == kill_at_chunk:
            await until(lambda: any(m["type"] == "note_off" for m in messages))
            for process in worker_processes():
                os.kill(process, signal.SIGKILL)
        session.send(chunk)
        await asyncio.sleep(0)
    session.end("stop")
    try:
        await receiving
    finally:
        session.close()


async def test_session_of_a_killed_worker_can_be_resumed() -> None:
    async with running_pool(WorkerPool(CONFIG, cores=2, workers=2)) as pool:
        exits: list[None] = []
        pool.on_worker_exit = lambda: exits.append(None)
        worker = pool.least_loaded()
        session = open_session(pool, open_command(RATE_HZ))
        assert pool.least_loaded() is not worker
        session.close()
        uninterrupted: list[dict[str, Any]] = []
        await perform(pool, uninterrupted)
        expected = events(uninterrupted)
        assert [m["type"] for m in expected].count("note_on") > 5
        messages: list[dict[str, Any]] = []
        with pytest.raises(ProtocolError) as error:
            await perform(pool, messages, kill_at_chunk=30)
        assert (error.value.code, error.value.code.retryable) == (ErrorCode.INTERNAL, True)
        last = max(n for n, m in enumerate(messages) if "checkpoint" in m)
        known_events = len(events(messages[last:]))
        resume = Checkpoint(**messages[last]["checkpoint"], known_events=known_events)
        await until(lambda: len(exits) == 2 and pool.is_ready)
        resumed: list[dict[str, Any]] = []
        await perform(pool, resumed, resume)
    # At its end, each session settles the instruments of the notes that ended in it.
    assert decided([*messages, *resumed]) == decided(uninterrupted)


def decided(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events without `done` and the updates at the end, which have no probability."""
    probable = {"note_on", "note_update"}
    all_events = [m for m in events(messages) if m["type"] != "done"]
    return [m for m in all_events if m["type"] not in probable or "instrument_probability" in m]


def test_background_pool_equals_the_local_engine() -> None:
    samples = SAMPLES.repeat(10)
    with running(WorkerPool(CONFIG, cores=2, workers=2)) as pool:
        with LocalEngine(load(CONFIG.model, "cpu"), workers=1) as engine:
            expected = transcribe_samples(engine, samples, RATE_HZ)
        notes, frames = transcribe_samples(pool, samples, RATE_HZ)
        assert notes == expected[0]
        np.testing.assert_array_equal(frames, expected[1])


async def test_load_failure_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    config = WorkerConfig(load=fail_to_load, model="", device="cpu", log_format="json")
    pool = WorkerPool(config, cores=2, workers=2)
    with pytest.raises(EngineError, match="ValueError: no such weights"):
        await pool.start()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert "no such weights" in lines[0]["exception"]


def fail_to_load(name: str, device: str) -> Any:
    raise ValueError("no such weights")


async def test_segment_that_kills_its_workers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.workers.pool.MIN_PAUSE_S", 0.01)
    setup = WorkerConfig(load=load_fatal, model="", device="cpu")
    async with running_pool(WorkerPool(setup, cores=2, workers=2)) as pool:
        exits: list[None] = []
        pool.on_worker_exit = lambda: exits.append(None)
        samples = random_performance(FAKE_RATE_HZ, 5, 6.0)  # at this rate nothing is resampled
        fatal = np.where(np.abs(samples) > 0.1, np.float32(FATAL), samples)
        with pytest.raises(EngineError, match="4 workers exited"):
            await asyncio.to_thread(transcribe_samples, pool, fatal, FAKE_RATE_HZ)
        await until(lambda: len(exits) >= 4 and pool.is_ready)
        notes, _ = await asyncio.to_thread(transcribe_samples, pool, samples, FAKE_RATE_HZ)
        assert len(notes) > 5


FATAL = 0.984375


class FatalStream(FakeStream):
    def advance(self, window: torch.Tensor, new_hops: int, shift: int = 0) -> torch.Tensor:
        if bool((window == FATAL).any()):
            os._exit(1)
        return super().advance(window, new_hops, shift)


class FatalTranscriber(FakeTranscriber):
    def open_stream(self) -> FakeStream:
        return FatalStream(self._kernels)


def load_fatal(name: str, device: str) -> FatalTranscriber:
    return FatalTranscriber()
