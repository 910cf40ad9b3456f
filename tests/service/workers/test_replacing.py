"""Workers that end at bad moments: threads here, since those are quick to start."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.config import HEADS, HOP, WINDOW
from service.engine.local import LocalComputer
from service.stream import stream as streams
from service.stream.recording import transcribe_array
from service.workers import pool as pools
from service.workers.messages import Setup
from service.workers.pool import Pool
from tests.fakes import FAKE_RATE_HZ, FakeStream, FakeTranscriber
from tests.service.streams import performance

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
    for number in (3, 6):  # of segments: it is somewhere among them
        await until(lambda: pool._segments._computing and max(pool._segments._computing) > number)  # noqa: B023
        pool._links[0].kill()
        await until(lambda: pool.ready)
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
