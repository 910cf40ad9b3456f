"""The listener of a session and the windows that it hears, from the options."""

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, ModelConfig
from service.engine.framer import OnFrames
from service.engine.windows import WindowSchedule
from service.notes.listener import Listener
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import Mode, StreamOptions, check_instruments


def listening(
    config: ModelConfig, options: StreamOptions, settings: TrackerSettings
) -> tuple[Listener, WindowSchedule]:
    """Both for a stream. Raises InstrumentsError if the model cannot tell its instruments apart."""
    rate_hz, newest_hops = config.sample_rate, config.newest_hops
    last_age = None
    if options.mode is Mode.ANYTIME:
        last_age = max(0, options.lookahead_hops(rate_hz) - newest_hops)
    listener = Listener(settings, HOP / rate_hz, config.heads, options.instruments, last_age)
    check_instruments(options.instruments, listener.instruments)
    if last_age is None:
        return listener, WindowSchedule.of(options, rate_hz)
    block, again = options.frames_per_window, listener.columns - 1
    return listener, WindowSchedule(newest_hops, block, again, last_age)


def with_full_lookahead(on_frames: OnFrames, schedule: WindowSchedule) -> OnFrames:
    """Passes each frame on once, when it has its full look-ahead."""
    if not schedule.again_frames:
        return on_frames
    column = schedule.again_frames - schedule.late_frames

    def pass_on(first_frame: int, frames: NDArray[np.float32]) -> None:
        first = first_frame - schedule.late_frames
        before = max(0, -first)  # frames that precede the stream
        settled = frames[:, column + before : column + schedule.block_frames]
        if settled.shape[1]:
            on_frames(first + before, settled)

    return pass_on
