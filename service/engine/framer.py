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
from service.audio.tuning import Tuner
from service.engine.batching import Priority, Probabilities
from service.engine.interface import EngineLike
from service.engine.windows import WindowSchedule

OnFrames = Callable[[int, NDArray[np.float32]], None]


class Framer:
    """Cuts samples into windows, submits them to the engine and passes on their frames in order.

    Not thread-safe. Call ``write``, ``run`` and ``finish`` one after the other; ``close`` may be
    called at any time, and must be: it frees the stream's place in the engine.
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
        tuner: Tuner,
    ) -> None:
        """Args:
            first_block: first block of the performance to compute.
            first_sample: index in the performance of the first sample written.
            max_pending_windows: windows per request to the engine.
            on_frames: called with the first frame and the probabilities [heads, n, 128] of each
                block, preceded by the frames that are read again. Frames after the stream's end
                are cut off, so a late block may have only re-read frames.
            tuner: told all samples; says how windows are read.

        Raises:
            EngineClosedError: the engine accepts no more streams.
        """
        self._schedule = schedule
        self._max_pending_windows = max_pending_windows
        self._on_frames = on_frames
        self._stream = engine.open_stream(priority, schedule.positions)
        self._requests = 1
        if priority is Priority.FILE:  # submits more before the first is answered
            self._requests = max(2, self._stream.depth // max_pending_windows)
        # The windows of requests stay in the ring until the engine has answered.
        pending = self._requests * max_pending_windows
        reach = (pending - 1) * schedule.block_frames * HOP
        self._ring = SampleRing(WINDOW, reach, first_sample)
        self._tuner = tuner
        self._shift = 0  # of the windows that are due
        self._due: list[NDArray[np.float32]] = []  # windows for the next request
        self._asked: deque[Future[Probabilities]] = deque()  # unanswered requests
        self._blocks = first_block  # blocks whose windows are due or done
        self._frames = schedule.first_frame(first_block)
        self._end_frame: int | None = None  # set at the end: frames from here on are dropped

    @property
    def frames(self) -> int:
        """Frames of the performance passed on so far."""
        return self._frames if self._end_frame is None else min(self._frames, self._end_frame)

    async def write(self, samples: NDArray[np.float32]) -> None:
        """Write samples, shape [n]; windows are submitted as soon as they fill a request."""
        start = 0
        while start < len(samples):
            step = self._samples_to_window
            await self._to_next_window(samples[start : start + step])
            start += step

    async def run(self) -> None:
        """Submit the windows that are due and pass on the frames of answered requests."""
        if not self._due:
            return
        windows, self._due = self._due, []
        self._asked.append(self._stream.submit(windows, self._schedule.block_frames, self._shift))
        await self._answers(self._requests - 1)

    async def finish(self) -> None:
        """Pass on all frames that begin within the samples, padded with silence."""
        total = self._ring.written
        self._end_frame = max(self._schedule.frames(total), self._frames)
        while self._blocks < self._schedule.blocks(total):
            await self._to_next_window(np.zeros(self._samples_to_window, np.float32))
        await self.run()
        await self._answers(0)

    def close(self) -> None:
        """Cancel pending requests and leave the engine."""
        self._due = []
        while self._asked:
            self._asked.pop().cancel()
        self._stream.close()

    @property
    def _samples_to_window(self) -> int:
        """Samples missing from the next window."""
        return self._schedule.end_sample(self._blocks) - self._ring.written

    async def _to_next_window(self, samples: NDArray[np.float32]) -> None:
        """Write samples, at most to the end of the next window; submit a full request."""
        self._ring.write(samples)
        self._tuner.write(samples)
        if self._samples_to_window == 0:
            shift = self._tuner.shift(self._ring.written)
            if shift != self._shift:
                await self.run()
                self._shift = shift
            self._due.append(self._ring.window())
            self._blocks += 1
            if len(self._due) == self._max_pending_windows:
                await self.run()

    async def _answers(self, pending: int) -> None:
        """Wait until at most ``pending`` requests are unanswered."""
        while len(self._asked) > pending:
            blocks = await asyncio.wrap_future(self._asked.popleft())
            for block in blocks:
                frames = block  # [heads, again_frames + block_frames, PITCHES]
                if self._end_frame is not None:
                    oldest = self._frames - self._schedule.again_frames
                    frames = block[:, : self._end_frame - oldest]
                self._on_frames(self._frames, frames)
                self._frames += self._schedule.block_frames
