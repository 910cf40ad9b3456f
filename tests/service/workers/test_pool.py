"""Workers in processes: a session whose worker exits resumes at another without a change."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.local import LocalEngine
from service.protocol.client_messages import Resume
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.windows import EngineError
from service.workers.connection import PROCESSES
from service.workers.messages import BatchTiming, WorkerConfig
from service.workers.pool import BackgroundPool, WorkerPool
from tests.benchmarks.machine import process_tree
from tests.service.apps import RATE_HZ, chunks, pcm16
from tests.service.serve_fake import load
from tests.service.streams import random_performance, transcribe_samples
from tests.service.workers.sessions import events, opening, receive_all, until

pytestmark = [
    pytest.mark.skipif(not PROCESSES, reason="no memory files on this system"),
    pytest.mark.timeout(300),
]
SAMPLES = random_performance(RATE_HZ, 5, 6.0)
PCM = pcm16(SAMPLES)
SETUP = WorkerConfig(load=load, model="all", device="cpu")


@asynccontextmanager
async def running(workers: int, **options: Any) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(SETUP, cores=2, workers=workers, **options)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def worker_processes() -> list[int]:
    """Process IDs of the workers; other children of this process are not killed."""
    commands = {
        pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in process_tree(os.getpid())[1:]
    }
    return [pid for pid, command in commands.items() if b"service.workers.worker" in command]


class Exits:
    """Counts the workers that have exited."""

    count = 0

    def on_batch(self, timing: BatchTiming) -> None:
        pass

    def on_worker_exit(self) -> None:
        self.count += 1


async def perform(pool: WorkerPool, resume: Resume | None = None, kill: int = -1) -> list[Any]:
    """Return the messages of a session; before this chunk all workers are killed."""
    session = pool.open_session(replace(opening(RATE_HZ), resume=resume))
    start = 2 * resume.from_sample if resume else 0
    messages: list[dict[str, Any]] = []
    receiving = asyncio.create_task(receive_all(session, messages))
    for number, chunk in enumerate(chunks(PCM[start:], 3_001)):
        if number == kill:
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
        received.append(messages)
    return messages


received: list[list[dict[str, Any]]] = []


async def test_a_killed_worker_ends_its_session_and_another_resumes_it() -> None:
    async with running(2) as pool:
        pool.observer = exits = Exits()
        expected = events(await perform(pool))
        assert [m["type"] for m in expected].count("note_on") > 5
        with pytest.raises(ProtocolError) as error:
            await perform(pool, kill=30)
        assert (error.value.code, error.value.code.retryable) == (ErrorCode.INTERNAL, True)
        before = received[-1]
        last = max(n for n, m in enumerate(before) if "checkpoint" in m)
        known = events(before[last:])
        resume = Resume(**before[last]["checkpoint"], known_events=len(known))
        await until(lambda: exits.count == 2 and pool.is_ready)
        after = await perform(pool, resume)
    assert [*events(before), *events(after)][:-1] == expected[:-1]


def test_a_program_without_an_event_loop_has_workers() -> None:
    samples = SAMPLES.repeat(10)
    background = BackgroundPool(WorkerPool(SETUP, cores=2, workers=2))
    with closing(background):
        with LocalEngine(load(SETUP.model, "cpu"), workers=1) as engine:
            expected = transcribe_samples(engine, samples, RATE_HZ)
        notes, frames = transcribe_samples(background.pool, samples, RATE_HZ)
        assert notes == expected[0]
        np.testing.assert_array_equal(frames, expected[1])
    background.close()


async def test_a_model_that_cannot_be_loaded_is_reported() -> None:
    pool = WorkerPool(WorkerConfig(load=broken, model="", device="cpu"), cores=2, workers=2)
    with pytest.raises(EngineError, match="ValueError: no such weights"):
        await pool.start()


def broken(name: str, device: str) -> Any:
    raise ValueError("no such weights")
