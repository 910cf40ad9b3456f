"""Workers in processes: whichever ends, what clients hear is what a single one would have said."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import numpy as np
import pytest

from service.engine.local import LocalComputer
from service.protocol.options import Mode, StreamOptions
from service.stream.windows import EngineError
from service.workers import pool as pools
from service.workers.link import Link
from service.workers.messages import Hello, Setup
from service.workers.pool import BackgroundPool, Pool
from service.workers.process import PROCESSES
from tests.service.apps import RATE_HZ, chunks, pcm16
from tests.service.serve_fake import load
from tests.service.streams import performance, recorded
from tests.service.workers.sessions import events, hear_all, opening, until

pytestmark = [
    pytest.mark.skipif(not PROCESSES, reason="no memory files on this system"),
    pytest.mark.timeout(300),
]
SAMPLES = performance(RATE_HZ, 5, 6.0)
PCM = pcm16(SAMPLES)
SETUP = Setup(load=load, model="all", device="cpu")
OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=200, block_frames=8),
    StreamOptions(mode=Mode.ANYTIME),
]


@asynccontextmanager
async def running(workers: int, **options: Any) -> AsyncIterator[Pool]:
    pool = Pool(SETUP, cores=2, workers=workers, **options)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


def end(link: Link, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(link._started._process.pid, how)  # type: ignore[union-attr]


async def perform(
    pool: Pool, options: StreamOptions, *ends_at: int, how: signal.Signals = signal.SIGKILL
) -> list[Any]:
    """What a client hears, but for the time; before some of the chunks its worker ends."""
    session = pool.open_session(opening(RATE_HZ, options, heat=True))
    hearing = asyncio.create_task(hear_all(session))
    for number, chunk in enumerate(chunks(PCM, 3_001)):
        if number in ends_at:
            await asyncio.sleep(0.2)  # it is somewhere in the audio before
            await until(lambda: session.link is not None)
            assert session.link is not None
            end(session.link, how)
        await session.room()
        session.send(chunk)
        if number == 30:
            session.flush("a")
    session.end("stop")
    messages = await hearing
    pool.close_session(session)
    frames = [m for m in messages if m["type"] == "frames"]
    first = [m["frame"] for m in frames]
    assert first == sorted(first)
    flushed = [{**m, "seq": 0} for m in messages if m["type"] == "flushed"]
    return [sum(m["count"] for m in frames), flushed, *events(messages)]


@pytest.mark.parametrize("options", OPTIONS, ids=["block", "blocks of 8", "anytime"])
async def test_a_killed_worker_is_not_heard(
    options: StreamOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.1)
    async with running(2) as pool:
        whole = await perform(pool, options)
        assert [m["type"] for m in whole[2:]].count("note_on") > 5
        assert await perform(pool, options, 20) == whole
        assert await perform(pool, options, 1, 45) == whole


async def test_a_stopped_worker_is_replaced_and_its_session_goes_on() -> None:
    async with running(2, hang_timeout_s=1.0) as pool:
        whole = await perform(pool, OPTIONS[0])
        assert await perform(pool, OPTIONS[0], 31, how=signal.SIGSTOP) == whole


async def test_sessions_wait_for_a_worker_that_starts_though_another_does_not() -> None:
    async with running(2) as pool:
        whole = await perform(pool, OPTIONS[0])
        launch, starts = pool._launch, 0

        async def fail_once(own_process: bool) -> Hello:
            nonlocal starts
            starts += 1
            if starts > 1:
                return await launch(own_process)
            await until(lambda: pool._links and not pool.ready)
            raise EngineError("out of memory")

        pool._launch = fail_once  # type: ignore[method-assign]
        for link in pool._links:
            end(link)
        await until(lambda: not pool.ready)
        assert await perform(pool, OPTIONS[0]) == whole


def test_recordings_of_pianos_are_computed_by_the_second_model() -> None:
    background = BackgroundPool(Pool(SETUP._replace(piano="notes"), cores=2, workers=2))
    with closing(background), LocalComputer(load("notes", "cpu")) as computer:
        assert background.pool.piano is not None
        notes, frames = recorded(background.pool.piano, SAMPLES.repeat(10), RATE_HZ)
        expected = recorded(computer, SAMPLES.repeat(10), RATE_HZ)
        assert notes == expected[0]
        np.testing.assert_array_equal(frames, expected[1])
        _, all_heads = recorded(background.pool, SAMPLES, RATE_HZ)
        assert len(all_heads) > len(frames)


async def test_a_model_that_cannot_be_loaded_is_reported() -> None:
    pool = Pool(Setup(load=broken, model="", device="cpu"), cores=2, workers=2)
    with pytest.raises(EngineError, match="ValueError: no such weights"):
        await pool.start()


def broken(name: str, device: str) -> Any:
    raise ValueError("no such weights")


def test_a_program_without_an_event_loop_has_workers_too() -> None:
    with LocalComputer(load("all", "cpu"), workers=1) as computer:
        whole = recorded(computer, SAMPLES.repeat(20), RATE_HZ)
    background = BackgroundPool(Pool(SETUP, cores=2, workers=2))
    try:
        heard = recorded(background.pool, SAMPLES.repeat(20), RATE_HZ)
    finally:
        background.close()
    background.close()
    assert heard[0] == whole[0]
    np.testing.assert_array_equal(heard[1], whole[1])
