"""From samples to frames: each comes once and in order, however they are written and asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.config import HOP, PITCHES
from service.engine.engine import Engine, Priority
from service.engine.framer import Framer
from service.engine.windows import WindowSchedule
from tests.fakes import FAKE_RATE_HZ, play

SCHEDULE = WindowSchedule(lookahead_hops=8, block_frames=4)
SAMPLES = play([(69, 0.1, 0.5), (81, 0.4, 0.9)], 1.0, FAKE_RATE_HZ)
FRAMES = -(-len(SAMPLES) // HOP)


class Heard:
    """Keeps frames, which must follow on each other."""

    def __init__(self) -> None:
        self.blocks: list[NDArray[np.float32]] = []

    def __call__(self, first_frame: int, frames: NDArray[np.float32]) -> None:
        assert first_frame == sum(block.shape[1] for block in self.blocks)
        self.blocks.append(frames)

    @property
    def frames(self) -> NDArray[np.float32]:
        return np.concatenate(self.blocks, axis=1)


def frames_of(engine: Engine, sizes: list[int], priority: Priority) -> NDArray[np.float32]:
    """All frames of SAMPLES, written in pieces of ``sizes``, taken in turn."""

    async def run() -> NDArray[np.float32]:
        heard = Heard()
        framer = Framer(engine, priority, SCHEDULE, 0, 0, 4, heard)
        start, turn = 0, 0
        while start < len(SAMPLES):
            size = sizes[turn % len(sizes)]
            await framer.write(SAMPLES[start : start + size])
            await framer.run()
            start, turn = start + size, turn + 1
        await framer.finish()
        assert framer.frames == FRAMES
        framer.close()
        return heard.frames

    return asyncio.run(run())


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(200, 9_000), min_size=1, max_size=4),
    priority=st.sampled_from(Priority),
)
def test_frames_depend_on_the_samples_alone(
    engine: Engine, sizes: list[int], priority: Priority
) -> None:
    whole = frames_of(engine, [len(SAMPLES)], Priority.LIVE)
    assert whole.shape == (3, FRAMES, PITCHES)
    np.testing.assert_array_equal(frames_of(engine, sizes, priority), whole)


class SilentStream:
    """Takes requests and never answers."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []
        self.closed = False

    def submit(self, windows: Sequence[Any], new_hops: int) -> Future[Any]:
        self.asked.append(Future())
        return self.asked[-1]

    def close(self) -> None:
        self.closed = True


class SilentEngine:
    def __init__(self) -> None:
        self.stream = SilentStream()

    def open_stream(self, priority: Priority, positions: slice) -> SilentStream:
        return self.stream


@pytest.mark.parametrize(("priority", "requests"), [(Priority.LIVE, 1), (Priority.FILE, 2)])
async def test_a_file_asks_again_before_it_has_its_answer(
    priority: Priority, requests: int
) -> None:
    engine = SilentEngine()
    framer = Framer(cast(Engine, engine), priority, SCHEDULE, 0, 0, 2, lambda first, frames: None)
    writing = asyncio.create_task(framer.write(SAMPLES))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(engine.stream.asked) == requests
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    framer.close()
    assert engine.stream.closed
    assert all(asked.cancelled() for asked in engine.stream.asked)
