"""Workers that end at bad moments: threads here, since those are quick to start."""

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import HEADS, HOP, WINDOW
from service.engine.local import LocalComputer
from service.protocol.faults import ProtocolError
from service.stream import stream as streams
from service.stream.windows import EngineError
from service.workers import link as links
from service.workers import pool as pools
from service.workers.link import Relay
from service.workers.messages import Open, Said, Setup
from service.workers.pool import Pool
from service.workers.session import LiveSession
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber, play
from tests.service.apps import chunks, pcm16
from tests.service.streams import performance, recorded
from tests.service.workers.sessions import events, hear_all, opening, until

SAMPLES = performance(FAKE_RATE_HZ, 5, 30.0)


class Remembering(FakeStream):
    """Hears nothing until it has heard as much as a window, unless the performance begins here."""

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


def threaded(load: Any = load) -> Pool:
    return Pool(Setup(load=load, model="", device="cpu"), cores=1, processes=False)


async def test_a_recording_goes_on_in_another_worker_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "SEGMENT_FRAMES", 512)
    with LocalComputer(load("", "cpu"), workers=1) as computer:
        notes, frames = recorded(computer, SAMPLES, FAKE_RATE_HZ)
    assert len(notes) > 20
    pool = threaded()
    await pool.start()
    task = asyncio.create_task(asyncio.to_thread(recorded, pool, SAMPLES, FAKE_RATE_HZ))
    for _ in range(2):
        await until(lambda: pool._segments._computing or task.done())
        pool._links[0].kill()
        await until(lambda: pool.ready)
        await asyncio.sleep(0.1)
    killed = await task
    await pool.close()
    assert np.array_equal(killed[1], frames)
    assert killed[0] == notes


async def test_one_start_at_a_time_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(pools, "LONGEST_PAUSE_S", 0.01)
    loads.clear()
    pool = threaded(load_once)
    await pool.start()
    pool._links[0].kill()
    while len(loads) < 8:
        await asyncio.sleep(0.001)
        assert len(pool._links) <= 1
    assert not pool.ready
    await pool.close()
    assert pool._tasks == set()


async def test_a_worker_that_ends_while_others_load_is_replaced() -> None:
    pool = threaded()
    gate, loading = asyncio.Event(), pool._launch

    async def slow(own_process: bool) -> Any:
        hello = await loading(own_process)
        pool._links[0].kill()
        await until(lambda: pool._links[0].closed)
        gate.set()
        return hello

    pool._launch = slow  # type: ignore[method-assign]
    starting = asyncio.create_task(pool.start())
    await gate.wait()
    pool._launch = loading  # type: ignore[method-assign]
    await starting
    await until(lambda: pool.ready)
    await pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker"]


async def perform(
    opened: Open, samples: NDArray[np.float32], kill_at: tuple[int, ...] = (), pause_s: float = 0.0
) -> tuple[list[dict[str, Any]], float]:
    """What a client hears, but for the time, and the most seconds that were kept of its audio."""
    pool = threaded()
    await pool.start()
    session = pool.open_session(opened)
    hearing = asyncio.create_task(hear_all(session))
    most = 0
    for number, chunk in enumerate(chunks(pcm16(samples), 2 * FAKE_RATE_HZ)):
        if number in kill_at:
            await asyncio.sleep(0.7)  # it has been reported how far it is
            pool._links[0].kill()
            await until(lambda: pool.ready)
        await session.room()
        session.send(chunk)
        most = max(most, len(session._audio))
        await asyncio.sleep(pause_s)
    session.end("stop")
    messages = await hearing
    await pool.close()
    return events(messages), most / 2 / FAKE_RATE_HZ


async def test_a_client_that_claims_to_know_events_can_go_on_in_another_worker() -> None:
    samples = SAMPLES[: 16 * FAKE_RATE_HZ]
    whole, _ = await perform(opening(FAKE_RATE_HZ), samples)
    for kill_at in ((), (2, 4)):
        known, _ = await perform(opening(FAKE_RATE_HZ, skip=20), samples, kill_at)
        assert known == whole[20:]
    known, kept_s = await perform(opening(FAKE_RATE_HZ, skip=10**6), samples, pause_s=0.5)
    assert len(known) == 1
    assert kept_s < 8


async def test_beats_go_on_in_another_worker() -> None:
    notes = [(p, 0.6 * (n + 1), 0.6 * (n + 1.8)) for n, p in enumerate([57, 69, 81, 69] * 8)]
    samples = play(notes, 20.4, FAKE_RATE_HZ)
    whole, _ = await perform(opening(FAKE_RATE_HZ, beats=True), samples)
    assert [one["type"] for one in whole].count("beat") > 20
    killed, _ = await perform(opening(FAKE_RATE_HZ, beats=True), samples, (13, 17))
    assert killed == whole


async def test_a_client_cannot_pile_up_flushes() -> None:
    session = Relay(opening(FAKE_RATE_HZ), FakeTranscriber().config)
    for _ in range(64):
        assert not session.full
        session.flush("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await session.room()


async def test_a_session_that_cannot_speak_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    say = LiveSession.said

    def said(self: LiveSession, now_s: float) -> Said | None:
        if self.number == 1 and self.stream.frames:
            raise RuntimeError("no words")
        return say(self, now_s)

    monkeypatch.setattr(LiveSession, "said", said)
    pool = threaded()
    await pool.start()
    mute, other = (pool.open_session(opening(FAKE_RATE_HZ)) for _ in range(2))
    for chunk in chunks(pcm16(SAMPLES[: 2 * FAKE_RATE_HZ]), FAKE_RATE_HZ):
        mute.send(chunk)
        other.send(chunk)
    other.end("stop")
    with pytest.raises(ProtocolError, match="server"):
        await hear_all(mute)
    assert (await hear_all(other))[-1]["type"] == "done"
    await pool.close()


async def test_a_worker_that_stops_while_it_loads_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "LONGEST_LOAD_S", 0.1)
    pool = threaded(load_never)
    with pytest.raises(EngineError, match="has not started"):
        await pool.start()
    await pool.close()
