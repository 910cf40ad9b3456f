"""From samples at the model's rate to frames: the ring, its windows, the engine's answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, WINDOW
from service.audio.ring import SampleRing
from service.engine.batching import Priority, Probabilities
from service.engine.interface import EngineLike
from service.engine.windows import WindowSchedule

OnFrames = Callable[[int, NDArray[np.float32]], None]


class Framer:
    """Cuts samples into windows, asks the engine for them and hands on their frames in order.

    Not thread-safe. ``write``, ``run`` and ``finish`` come one after the other; ``close`` may come
    at any time, and is owed, as it frees the stream's place in the engine.
    """

    def __init__(
        self,
        engine: EngineLike,
        priority: Priority,
        schedule: WindowSchedule,
        first_block: int,
        first_sample: int,
        max_pending_windows: int,
        on_frames: OnFrames,
    ) -> None:
        """Args:
            first_block: block of the performance that is asked for first.
            first_sample: place in the performance of the first sample that is written.
            max_pending_windows: windows of one request to the engine.
            on_frames: takes the first frame and the probabilities [heads, n, 128] of each block,
                those of the frames that are read again before them. Frames after the stream's
                end are cut off; of its late blocks nothing else may be left.

        Raises:
            EngineClosedError: the engine takes no more streams.
        """
        self._engine = engine
        self._priority = priority
        self._schedule = schedule
        self._max_pending_windows = max_pending_windows
        self._on_frames = on_frames
        # A file asks again before it has its answer, so that no core waits for the other.
        self._requests = 2 if priority is Priority.FILE else 1
        # The windows of requests stay in the ring until the engine has answered.
        pending = self._requests * max_pending_windows
        reach = (pending - 1) * schedule.block_frames * HOP
        self._ring = SampleRing(WINDOW, reach, first_sample)
        self._due: list[NDArray[np.float32]] = []  # windows for the next request
        self._asked: deque[Future[Probabilities]] = deque()  # requests without an answer
        self._blocks = first_block  # blocks whose windows are due or done
        self._frames = schedule.first_frame(first_block)
        self._end_frame: int | None = None  # known at the end: frames from there on are dropped
        self._stream = engine.open_stream(priority, schedule.positions)

    @property
    def frames(self) -> int:
        """Frames of the performance up to the last that was handed on."""
        return self._frames if self._end_frame is None else min(self._frames, self._end_frame)

    async def write(self, samples: NDArray[np.float32]) -> None:
        """Take samples, shape [n]; windows are run as soon as they fill a request."""
        start = 0
        while start < len(samples):
            step = self._samples_to_window
            await self._to_next_window(samples[start : start + step])
            start += step

    async def run(self) -> None:
        """Ask for the windows that are due; hand on the frames of the answers owed by now."""
        if not self._due:
            return
        windows, self._due = self._due, []
        self._asked.append(self._stream.submit(windows, self._schedule.block_frames))
        await self._answers(self._requests - 1)

    async def finish(self) -> None:
        """Hand on all frames that begin within the samples; silence follows them."""
        total = self._ring.written
        self._end_frame = max(self._schedule.frames(total), self._frames)
        while self._blocks < self._schedule.blocks(total):
            await self._to_next_window(np.zeros(self._samples_to_window, np.float32))
        await self.run()
        await self._answers(0)

    def close(self) -> None:
        """Drop what waits and leave the engine."""
        self._due = []
        while self._asked:
            self._asked.pop().cancel()
        self._stream.close()

    @property
    def _samples_to_window(self) -> int:
        """Samples missing until the next window is whole."""
        return self._schedule.end_sample(self._blocks) - self._ring.written

    async def _to_next_window(self, samples: NDArray[np.float32]) -> None:
        """Take samples up to the end of the next window at most; run the windows of a request."""
        self._ring.write(samples)
        if self._samples_to_window == 0:
            self._due.append(self._ring.window(self._ring.written))
            self._blocks += 1
            if len(self._due) == self._max_pending_windows:
                await self.run()

    async def _answers(self, pending: int) -> None:
        """Wait until so many requests are without an answer."""
        while len(self._asked) > pending:
            blocks = await asyncio.wrap_future(self._asked.popleft())
            for block in blocks:
                frames = block  # [heads, again_frames + block_frames, PITCHES]
                if self._end_frame is not None:
                    oldest = self._frames - self._schedule.again_frames
                    frames = block[:, : self._end_frame - oldest]
                self._on_frames(self._frames, frames)
                self._frames += self._schedule.block_frames
