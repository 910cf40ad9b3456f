"""Which window each frame is read from, windows that are due, and whoever computes them.

Frame f describes sample HOP * f of the stream at the model's rate. Block j holds the frames
k * j ... k * j + k - 1 and is read from one window, whose end lies L hops after its newest frame:

    samples    ...--+--------+--------+--------+--------+-- ... --+
    frames         kj      kj+1      ...    kj+k-1                |
                    |<--------- k - 1 hops ------>|<--- L hops -->| window ends here

A frame that lies d hops before the window's end is position FRAMES - d of the model's output.
With L = 32 and k = 1 this is the paper's scheme: one window per hop yields its middle frame.

In anytime mode L is the model's minimum, and each window is also read at older frames, for which it
has more future than the windows before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.config import FRAMES, HOP, WINDOW, ModelConfig
from service.audio.resample import RateRatio
from service.protocol.options import FILE_OPTIONS, AudioFormat, Mode, StreamOptions

MAX_WINDOWS_PER_BATCH = 4  # windows that may be taken at once

SEGMENT_FRAMES = 2048
"""Frames of a recording's segment, including those that are read again: 24 s, and 24 MB of
probabilities with 23 heads."""


@dataclass(frozen=True, slots=True)
class WindowSchedule:
    """Windows and frames of a stream.

    Attributes:
        lookahead_hops: L, from the newest frame of a block to the end of its window.
        block_frames: k, frames per block; successive windows are k hops apart.
        repeated_frames: older frames that are read again with each block.
        late_frames: how many frames after its own may still decide a frame; blocks with as many are
            computed after the end of a stream.
    """

    lookahead_hops: int
    block_frames: int
    repeated_frames: int = 0
    late_frames: int = 0

    def __post_init__(self) -> None:
        oldest = self.lookahead_hops + self.block_frames + self.repeated_frames - 1
        if self.lookahead_hops < 1 or self.block_frames < 1 or oldest > FRAMES:
            raise ValueError(f"{self} does not fit into a window of {FRAMES} frames")

    @classmethod
    def of(cls, options: StreamOptions, config: ModelConfig) -> WindowSchedule:
        """The schedule of a stream with these options; in anytime mode of its newest frames."""
        lookahead_hops = options.lookahead_hops(config.sample_rate)
        if options.mode is Mode.ANYTIME:
            lookahead_hops = config.min_lookahead_hops
        return cls(lookahead_hops, options.frames_per_window)

    @property
    def positions(self) -> slice:
        """Positions, among the model's FRAMES, of a block's frames and those read again, oldest
        first."""
        newest = FRAMES - self.lookahead_hops
        return slice(newest - self.block_frames - self.repeated_frames + 1, newest + 1)

    def first_frame(self, block: int) -> int:
        """The oldest frame of a block."""
        return self.block_frames * block

    def end_sample(self, block: int) -> int:
        """One past the last sample of a block's window."""
        newest = self.first_frame(block) + self.block_frames - 1
        return HOP * (newest + self.lookahead_hops)

    def complete(self, samples: int) -> int:
        """Number of blocks whose windows end within this many samples."""
        held = HOP * (self.lookahead_hops + self.block_frames - 1)
        return max(0, (samples - held) // (HOP * self.block_frames) + 1)

    def frames(self, samples: int) -> int:
        """Number of frames that begin within a stream of this many samples."""
        return -(-samples // HOP)

    def blocks(self, samples: int) -> int:
        """Number of blocks that decide all frames of a stream of this many samples."""
        return -(-(self.frames(samples) + self.late_frames) // self.block_frames)


@dataclass(frozen=True, slots=True)
class PendingWindows:
    """Consecutive windows of a stream whose samples have arrived, but are not computed yet.

    Attributes:
        samples: samples of all windows, which overlap. Read-only.
        windows: number of windows, without the pre-roll.
        new_hops: hops between windows, and between the stream's previous window and the first.
        positions: positions that are used, among the network's FRAMES.
        preroll: number of earlier windows, computed only to restore streaming state.
        shifts: for each window, including the pre-roll, the number of bins by which the filters
            are higher (``model.transcriber.FeatureStream``). Empty means 0 for all.
    """

    samples: NDArray[np.float32]
    windows: int
    new_hops: int
    positions: slice
    preroll: int = 0
    shifts: tuple[int, ...] = ()

    def iter_windows(self) -> list[tuple[NDArray[np.float32], int]]:
        """Each window, [WINDOW], and its shift, oldest first, the preroll included."""
        count, step = self.preroll + self.windows, self.new_hops * HOP
        starts = range(0, count * step, step)
        windows = [self.samples[start : start + WINDOW] for start in starts]
        return list(zip(windows, self.shifts or count * (0,), strict=True))

    def subset(self, first: int, count: int) -> PendingWindows:
        """Some of the windows; ``first`` counts from the preroll on."""
        step = self.new_hops * HOP
        count = min(count, self.preroll + self.windows - first)
        preroll = min(count, max(0, self.preroll - first))
        samples = self.samples[first * step : (first + count - 1) * step + WINDOW]
        shifts = self.shifts[first : first + count]
        return replace(
            self, samples=samples, windows=count - preroll, preroll=preroll, shifts=shifts
        )


Probabilities = NDArray[np.float32]  # [windows, heads, positions, PITCHES]


class EngineError(RuntimeError):
    """The model failed, or nobody is there to run it."""


class InferenceEngine(Protocol):
    """Computes segments of recordings, in this process or others, several at once.

    Attributes:
        config, card: of the model.
        workers: segments computed at once.
    """

    @property
    def config(self) -> ModelConfig: ...
    @property
    def card(self) -> Mapping[str, Any]: ...
    @property
    def workers(self) -> int: ...

    def submit(self, segment: PendingWindows) -> Future[Probabilities]:
        """The probabilities of a segment; fails with EngineError."""
        ...


def complete_windows(
    options: StreamOptions, audio: AudioFormat, config: ModelConfig
) -> Callable[[int], int]:
    """Return a function that maps a number of samples to the number of windows they complete."""
    schedule = WindowSchedule.of(options, config)
    ratio = RateRatio.of(audio.sample_rate_hz, config.sample_rate)
    return lambda samples: schedule.complete(ratio.outputs(samples))


def common_positions(config: ModelConfig) -> list[slice]:
    """Return the positions that streams with default options use."""
    options = (StreamOptions(), FILE_OPTIONS)
    return [WindowSchedule.of(choice, config).positions for choice in options]
