"""Workers that end at bad moments: threads here, since those are quick to start."""

import asyncio
import json
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import HEADS, HOP, WINDOW
from service.engine.local import LocalComputer
from service.protocol.faults import ProtocolError
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.protocol.server_messages import Limits
from service.stream import stream as streams
from service.stream.computer import EngineError
from service.stream.recording import transcribe_array
from service.workers import link as links
from service.workers import pool as pools
from service.workers.live import Session
from service.workers.messages import Open, Said, Setup
from service.workers.pool import Pool
from service.workers.session import LiveSession
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber
from tests.service.apps import chunks, pcm16
from tests.service.streams import performance

SAMPLES = performance(FAKE_RATE_HZ, 5, 30.0)


def opening(known_events: int) -> Open:
    limits = Limits(max_message_bytes=1, max_session_s=1, idle_timeout_s=1, max_buffered_ms=1)
    return Open(
        stream=0,
        session_id="ab",
        audio=AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=FAKE_RATE_HZ),
        options=StreamOptions(),
        limits=limits,
        max_notes=1000,
        lagging_ms=1e9,
        known_events=known_events,
        updates=True,
    )


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


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_a_recording_goes_on_in_another_worker_as_if_nothing_had_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "SEGMENT_FRAMES", 512)
    with LocalComputer(load("", "cpu"), workers=1) as computer:
        whole = transcribe_array(SAMPLES, FAKE_RATE_HZ, computer)
    assert len(whole.notes) > 20
    pool = Pool(Setup(load=load, model="", device="cpu"), cores=1, processes=False)
    await pool.start()
    recording = asyncio.to_thread(transcribe_array, SAMPLES, FAKE_RATE_HZ, pool)
    task = asyncio.create_task(recording)
    for _ in range(2):
        await until(lambda: pool._segments._computing or task.done())
        pool._links[0].kill()
        await until(lambda: pool.ready)
        await asyncio.sleep(0.1)
    killed = await task
    await pool.close()
    assert np.array_equal(killed.probabilities, whole.probabilities)
    assert killed.notes == whole.notes


async def test_one_start_at_a_time_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(pools, "LONGEST_PAUSE_S", 0.01)
    loads.clear()
    pool = Pool(Setup(load=load_once, model="", device="cpu"), cores=1, processes=False)
    await pool.start()
    pool._links[0].kill()
    while len(loads) < 8:
        await asyncio.sleep(0.001)
        assert len(pool._links) <= 1
    assert not pool.ready
    await pool.close()
    assert pool._tasks == set()


async def test_a_worker_that_ends_while_others_load_is_replaced() -> None:
    pool = Pool(Setup(load=load, model="", device="cpu"), cores=1, processes=False)
    gate, loading = asyncio.Event(), pool._launch

    async def slow(in_process: bool) -> Any:
        hello = await loading(in_process)
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


async def hear_all(session: Session) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    while True:
        said = await session.said()
        messages += map(json.loads, said.texts)
        if said.ended is not None:
            return messages


def events(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = ("note_on", "note_off", "note_update", "pedal", "done")
    return [{**one, "seq": 0} for one in messages if one["type"] in kinds]


async def test_a_client_that_claims_to_know_events_can_go_on_in_another_worker() -> None:
    pool = Pool(Setup(load=load, model="", device="cpu"), cores=1, processes=False)
    await pool.start()
    audio = pcm16(SAMPLES[: 16 * FAKE_RATE_HZ])

    async def perform(known_events: int, kill_at: tuple[int, ...] = ()) -> list[dict[str, Any]]:
        session = pool.open_session(opening(known_events))
        hearing = asyncio.create_task(hear_all(session))
        for number, chunk in enumerate(chunks(audio, 2 * FAKE_RATE_HZ)):
            if number in kill_at:
                await asyncio.sleep(0.7)  # it has been reported how far it is
                pool._links[0].kill()
                await until(lambda: pool.ready)
            await session.room()
            session.send(chunk)
            if known_events > 100:
                kept = sum(len(item) for item in session._log if isinstance(item, bytes))
                most.append(kept / 2 / FAKE_RATE_HZ)
                await asyncio.sleep(0.5)
        session.end("stop")
        return events(await hearing)

    most: list[float] = []
    whole = await perform(0)

    assert await perform(20) == whole[20:]
    assert await perform(20, kill_at=(2, 4)) == whole[20:]
    assert len(await perform(10**6)) == 1
    assert max(most) < 8
    await pool.close()


async def test_a_client_cannot_pile_up_flushes() -> None:
    session = Session(opening(0), FakeTranscriber().config)
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
    pool = Pool(Setup(load=load, model="", device="cpu"), cores=1, processes=False)
    await pool.start()
    mute, other = (pool.open_session(opening(0)) for _ in range(2))
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
    pool = Pool(Setup(load=load_never, model="", device="cpu"), cores=1, processes=False)
    with pytest.raises(EngineError, match="has not started"):
        await pool.start()
    await pool.close()
