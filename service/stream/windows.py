"""Windows of a stream: their schedule, their samples, and the engine that computes them.

Frame f is at sample HOP * f of the stream at the model's rate. Block j has the k frames from k * j
to k * j + k - 1. All of them come from one window, which ends L hops after the newest frame:

    samples    ...--+--------+--------+--------+--------+-- ... --+
    frames         kj      kj+1      ...    kj+k-1                |
                    |<--------- k - 1 hops ------>|<--- L hops -->| window ends here

A frame d hops before the window's end is at position FRAMES - d of the model's output. The paper
uses L = 32 and k = 1: each hop has a window, of which only the middle frame is used.

In anytime mode L is the model's minimum. Frames before the block are then repeated: each window
predicts them again, with more audio after them than in earlier windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, WINDOW, ModelConfig
from service.protocol.options import (
    FILE_OPTIONS,
    MAX_ANYTIME_BLOCK_FRAMES,
    MAX_BLOCK_FRAMES,
    Mode,
    StreamOptions,
)

MAX_WINDOWS_PER_BATCH = 4  # maximum number of windows of a live stream in one batch

SEGMENT_FRAMES = 2048
"""Maximum number of frames in a segment of a recording, including repeated frames: 24 s, or 24 MB
of probabilities with 23 heads."""

Samples = NDArray[np.float32]


class SampleBuffer:
    """Buffer of samples at the model's rate: the latest windows, which overlap, and later samples.

        silence before the stream   in earlier windows          later samples
        .............|--------------------------------------|----------------|
                   begin      |<--- last window: 8192 -->|                  end
                                                        due

    Indexes count from the start of the performance.

    Attributes:
        due: index after the last sample of the last window.
    """

    def __init__(self, first_sample: int, kept: int) -> None:
        """kept: number of samples to keep before ``due``. Silence precedes ``first_sample``."""
        self.due, self._kept = first_sample, kept
        self._begin = first_sample - kept
        self._samples = np.zeros(kept, np.float32)

    @property
    def end(self) -> int:
        """Index after the last sample."""
        return self._begin + len(self._samples)

    def append(self, samples: Samples) -> None:
        """Append the next samples, shape [n]. Views of earlier samples stay valid."""
        begin = self.due - self._kept
        kept = self._samples[begin - self._begin :]
        self._samples, self._begin = np.concatenate([kept, samples]), begin

    def advance(self, due: int) -> Samples:
        """Set ``due``. Return the samples from the old value of ``due`` to the new value."""
        new = self.between(self.due, due)
        self.due = due
        return new

    def between(self, first: int, stop: int) -> Samples:
        return self._samples[first - self._begin : stop - self._begin]


@dataclass(frozen=True, slots=True)
class WindowSchedule:
    """Windows and frames of a stream."""

    lookahead_hops: int  # L, the hops from the newest frame of a block to the end of its window
    block_frames: int  # k, the number of frames per block. Successive windows are k hops apart
    repeated_frames: int = 0  # number of frames before a block that its window predicts again
    late_frames: int = 0
    """In anytime mode, age in frames at which a frame has its full look-ahead, else 0. This number
    of frames is also computed after the end of a stream."""
    history_frames: int = 0  # number of earlier frames that the event detector needs
    preroll_hops: int = 0  # number of earlier hops that restore the network's streaming state

    def __post_init__(self) -> None:
        oldest = self.lookahead_hops + self.block_frames + self.repeated_frames - 1
        if self.lookahead_hops < 1 or self.block_frames < 1 or oldest > FRAMES:
            raise ValueError(f"{self} does not fit into a window of {FRAMES} frames")

    @classmethod
    def of(cls, options: StreamOptions, config: ModelConfig) -> WindowSchedule:
        """Return the schedule for these options, without the frames that the detector needs."""
        lookahead_hops = options.lookahead_hops(config.sample_rate)
        if options.mode is Mode.ANYTIME:
            lookahead_hops = config.min_lookahead_hops
        frames = options.frames_per_window
        return cls(lookahead_hops, frames, preroll_hops=config.preroll_hops)

    @property
    def positions(self) -> slice:
        """Positions, among the model's FRAMES, of the repeated frames and the block."""
        newest = FRAMES - self.lookahead_hops
        return slice(newest - self.block_frames - self.repeated_frames + 1, newest + 1)

    def widened(self) -> WindowSchedule:
        """Return the schedule in which each window predicts the frames of as many blocks as fit."""
        max_frames = MAX_ANYTIME_BLOCK_FRAMES if self.repeated_frames else MAX_BLOCK_FRAMES
        blocks = max(1, max_frames // self.block_frames)
        return replace(self, block_frames=blocks * self.block_frames)

    def first_frame(self, block: int) -> int:
        return self.block_frames * block

    def end_sample(self, block: int) -> int:
        """Return the index after the last sample of a block's window."""
        newest = self.first_frame(block) + self.block_frames - 1
        return HOP * (newest + self.lookahead_hops)

    @property
    def preroll_blocks(self) -> int:
        return -(-self.preroll_hops // self.block_frames)

    def first_blocks(self, frames: int) -> tuple[int, int]:
        """Return the first block to compute, and the first block for the event detector, in order
        to restore the state after ``frames`` frames."""
        first_detected = max(0, frames - self.history_frames) // self.block_frames
        return max(0, first_detected - self.preroll_blocks), first_detected

    def first_sample(self, block: int) -> int:
        """Return the index of the first sample of a block's window, after any silence."""
        return max(0, self.end_sample(block) - WINDOW)

    def tuning_sample(self, first_block: int) -> int:
        """Return the sample from which a stream that starts at this block needs the tuning."""
        return self.end_sample(first_block) if first_block else 0

    def complete(self, samples: int) -> int:
        """Return the number of blocks whose windows end within the first ``samples`` samples."""
        held = HOP * (self.lookahead_hops + self.block_frames - 1)
        return max(0, (samples - held) // (HOP * self.block_frames) + 1)

    def frames(self, samples: int) -> int:
        """Return the number of frames in the first ``samples`` samples."""
        return -(-samples // HOP)

    def blocks(self, samples: int) -> int:
        """Return the number of blocks that decide all frames of the first ``samples`` samples."""
        return -(-(self.frames(samples) + self.late_frames) // self.block_frames)


@dataclass(frozen=True, slots=True)
class PendingWindows:
    """Consecutive windows of a stream that are ready to be computed."""

    samples: NDArray[np.float32]  # samples of all windows, which overlap. Read-only
    windows: int  # number of windows after the pre-roll
    new_hops: int  # hops from one window to the next
    positions: slice  # positions of the required frames among the network's FRAMES
    preroll: int = 0  # number of earlier windows, computed only to restore streaming state
    shifts: tuple[int, ...] = ()
    """For each window, including the pre-roll, the number of bins by which its filters are shifted
    upwards (``model.transcriber.FeatureStream``). Empty means 0 for all windows."""

    def iter_windows(self) -> list[tuple[NDArray[np.float32], int]]:
        """Return each window, [WINDOW], and its shift, oldest first, including the pre-roll."""
        count, step = self.preroll + self.windows, self.new_hops * HOP
        starts = range(0, count * step, step)
        windows = [self.samples[start : start + WINDOW] for start in starts]
        return list(zip(windows, self.shifts or count * (0,), strict=True))

    def subset(self, first: int, count: int) -> PendingWindows:
        """Return ``count`` windows from index ``first`` on, or fewer at the end. Indexes count from
        the start of the pre-roll."""
        step = self.new_hops * HOP
        count = min(count, self.preroll + self.windows - first)
        preroll = min(count, max(0, self.preroll - first))
        samples = self.samples[first * step : (first + count - 1) * step + WINDOW]
        shifts = self.shifts[first : first + count]
        return replace(
            self, samples=samples, windows=count - preroll, preroll=preroll, shifts=shifts
        )


Probabilities = NDArray[np.float32]  # [windows, heads, positions, PITCHES]


class BatchTiming(NamedTuple):
    """Computing time of a batch.

    ``model_s`` is the time of the network. In live batches ``total_s`` also includes note tracking
    and messages. ``way`` is `live` or `file`. ``windows`` is 0 if the batch failed. ``is_busy`` is
    True if a batch of live streams has the maximum size, or other windows wait for the next batch.
    """

    way: str
    windows: int
    model_s: float
    total_s: float
    is_busy: bool = False


class EngineError(RuntimeError):
    """The model or a worker failed, or the engine is closed."""


class WorkersExitedError(EngineError):
    """Each worker that computed a part of this recording exited, so the recording may cause it."""


class InferenceEngine(Protocol):
    """Computes segments of recordings, ``workers`` at a time, in this process or in others."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def workers(self) -> int: ...

    def submit(self, segment: PendingWindows) -> Future[Probabilities]:
        """Return a future for the probabilities of a segment. The future, or this call if the
        engine is closed, raises EngineError."""
        ...


def common_positions(config: ModelConfig) -> list[slice]:
    """Return the positions that live streams and recordings with default options use."""
    options = (StreamOptions(), FILE_OPTIONS)
    return [WindowSchedule.of(choice, config).positions for choice in options]
