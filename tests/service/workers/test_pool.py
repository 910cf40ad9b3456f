"""Workers in processes: whichever ends, what clients hear is what a single one would have said."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.engine.local import LocalComputer
from service.protocol.options import AudioFormat, Encoding, Mode, StreamOptions
from service.protocol.server_messages import Limits
from service.stream.computer import EngineError
from service.stream.recording import transcribe_array
from service.workers import pool as pools
from service.workers.background import BackgroundPool
from service.workers.link import Link
from service.workers.live import Session
from service.workers.messages import Open, Setup
from service.workers.pool import Pool
from service.workers.process import PROCESSES
from tests.service.apps import RATE_HZ, chunks, pcm16
from tests.service.serve_fake import load
from tests.service.streams import performance

pytestmark = [
    pytest.mark.skipif(not PROCESSES, reason="no memory files on this system"),
    pytest.mark.timeout(300),
]
PATIENCE_S = 120.0
SAMPLES = performance(RATE_HZ, 5, 6.0)
PCM = pcm16(SAMPLES)
LIMITS = Limits(max_message_bytes=1, max_session_s=1, idle_timeout_s=1, max_buffered_ms=1)
OPTIONS = [
    StreamOptions(),
    StreamOptions(lookahead_ms=200, block_frames=8),
    StreamOptions(mode=Mode.ANYTIME),
]


def setup(heads: str = "all") -> Setup:
    return Setup(load=load, model=heads, device="cpu")


def opening(options: StreamOptions, **fields: Any) -> Open:
    audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=RATE_HZ)
    return Open(
        stream=0,
        session_id="ab",
        audio=audio,
        options=options,
        limits=LIMITS,
        max_notes=1000,
        lagging_ms=1e9,
        **{"updates": True, "heat": True, **fields},
    )


@asynccontextmanager
async def running(workers: int, **options: Any) -> AsyncIterator[Pool]:
    pool = Pool(setup(), cores=2, workers=workers, **options)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


async def said(session: Session) -> list[dict[str, Any]]:
    """Everything up to its end, in one order and numbered without a gap."""
    messages: list[dict[str, Any]] = []
    while True:
        async with asyncio.timeout(PATIENCE_S):
            said = await session.said()
        messages += map(json.loads, said.texts)
        if said.ended is not None:
            assert [message["seq"] for message in messages] == list(range(len(messages)))
            return messages


def content(messages: list[dict[str, Any]]) -> list[Any]:
    """All that a client hears, without what depends on time."""
    heat = [m["probabilities_base64"] for m in messages if m["type"] == "frames"]
    first = [m["frame"] for m in messages if m["type"] == "frames"]
    clocked = ("frames", "progress", "ready", "lagging", "flushed")
    kept = [m for m in messages if m["type"] not in clocked]
    flushed = [{**m, "seq": 0} for m in messages if m["type"] == "flushed"]
    covered = sum(m["count"] for m in messages if m["type"] == "frames")
    assert first == sorted(first)
    return [covered, bool(heat), flushed, *({**message, "seq": 0} for message in kept)]


async def perform(pool: Pool, options: StreamOptions, kill_at: set[int] = frozenset()) -> list[Any]:  # type: ignore[assignment]
    """A session in chunks; before some of them its worker is killed."""
    session = pool.open_session(opening(options))
    hearing = asyncio.create_task(said(session))
    for number, chunk in enumerate(chunks(PCM, 3_001)):
        if number in kill_at:
            await asyncio.sleep(0.2)  # it is somewhere in the audio before
            while session._link is None:
                await asyncio.sleep(0.05)
            kill(link_of(session))
        await session.room()
        session.send(chunk)
        if number == 30:
            session.flush("a")
    session.end("stop")
    messages = await hearing
    pool.close_session(session)
    return content(messages)


def link_of(session: Session) -> Link:
    link = session._link
    assert link is not None
    return link


def kill(link: Link) -> None:
    link._started._process.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", OPTIONS, ids=["block", "blocks of 8", "anytime"])
async def test_a_killed_worker_is_not_heard(
    options: StreamOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.1)
    async with running(2) as pool:
        whole = await perform(pool, options)
        assert [m["type"] for m in whole[3:]].count("note_on") > 5
        assert await perform(pool, options, {20}) == whole
        assert await perform(pool, options, {1, 45}) == whole


async def test_a_stopped_worker_is_replaced_and_its_session_goes_on() -> None:
    async with running(2, hang_timeout_s=1.0) as pool:
        whole = await perform(pool, OPTIONS[0])
        session = pool.open_session(opening(OPTIONS[0]))
        hearing = asyncio.create_task(said(session))
        for number, chunk in enumerate(chunks(PCM, 3_001)):
            await session.room()
            session.send(chunk)
            if number == 30:
                session.flush("a")
                await asyncio.sleep(0.2)
                os.kill(link_of(session)._started._process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
        session.end("stop")
        assert content(await hearing) == whole


async def test_a_killed_worker_changes_no_recording() -> None:
    with LocalComputer(load("all", "cpu"), workers=1) as computer:
        whole = transcribe_array(SAMPLES, RATE_HZ, computer)

    async with running(2) as pool:
        recording = asyncio.to_thread(transcribe_array, SAMPLES.repeat(20), RATE_HZ, pool)
        task = asyncio.create_task(recording)
        while not pool._segments._computing:
            await asyncio.sleep(0.001)
        kill(next(iter(pool._segments._computing.values()))[1])
        killed = await task
        again = await asyncio.to_thread(transcribe_array, SAMPLES.repeat(20), RATE_HZ, pool)
        assert killed.notes == again.notes
        assert (killed.probabilities == again.probabilities).all()
        alone = await asyncio.to_thread(transcribe_array, SAMPLES, RATE_HZ, pool)
        assert alone.notes == whole.notes
        async with asyncio.timeout(PATIENCE_S):
            while any(len(link.free) < 2 for link in pool._links):
                await asyncio.sleep(0.01)


async def test_a_model_that_cannot_be_loaded_is_reported() -> None:
    pool = Pool(Setup(load=broken, model="", device="cpu"), cores=2, workers=2)
    with pytest.raises(EngineError, match="ValueError: no such weights"):
        await pool.start()


def broken(name: str, device: str) -> Any:
    raise ValueError("no such weights")


def test_a_program_without_an_event_loop_has_workers_too() -> None:
    with LocalComputer(load("all", "cpu"), workers=1) as computer:
        whole = transcribe_array(SAMPLES, RATE_HZ, computer)
    background = BackgroundPool(Pool(setup(), cores=2, workers=2))
    try:
        heard = transcribe_array(SAMPLES, RATE_HZ, background.pool)
    finally:
        background.close()
    background.close()
    assert heard.notes == whole.notes
