"""Builds the parts of a stream from its options, and computes the delay of its events.

The delay is the time from the arrival of a sound until its event is decided. It is the sum of

    look-ahead        audio after a frame that the model needs to predict the frame
    + block           time until the last frame of the same block can be predicted
    + resampler       delay of the anti-alias filter
    + tracker         later frames that confirm an onset peak or an offset

``ready`` states the sum for each kind of event, without network and computing time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import HOP, FilterbankConfig, ModelConfig
from model.instruments import PROGRAMS, predicted_instruments
from service.audio.tuning import CONCERT_HZ, Tuner
from service.notes.event_detector import EventDetector
from service.notes.tracker_settings import TrackerSettings
from service.protocol.checkpoint import Tuning
from service.protocol.options import Mode, StreamOptions, check_instruments
from service.stream.windows import WindowSchedule

OnFrames = Callable[[int, NDArray[np.float32]], None]


def describe_options(options: StreamOptions, config: ModelConfig) -> dict[str, Any]:
    """Return the effective options, and the MIDI program of each instrument that notes may have."""
    return {
        "model": config.name,
        "mode": options.mode.value,
        "lookahead_ms": round(options.actual_lookahead_ms(config.sample_rate), 3),
        "block_frames": options.frames_per_window,
        "instruments": {
            name: PROGRAMS[name]
            for name in predicted_instruments(config.heads)
            if name in options.instruments or not options.instruments
        },
    }


def build_detector(
    config: ModelConfig, options: StreamOptions, settings: TrackerSettings
) -> tuple[EventDetector, WindowSchedule]:
    """Return the event detector and the schedule of a stream. Raises ProtocolError for instruments
    that the model does not distinguish."""
    rate_hz, schedule = config.sample_rate, WindowSchedule.of(options, config)
    last_age = None
    if options.mode is Mode.ANYTIME:
        last_age = max(0, options.lookahead_hops(rate_hz) - config.min_lookahead_hops)
    heads, bends = config.outputs, options.bends
    detector = EventDetector(settings, HOP / rate_hz, heads, options.instruments, last_age, bends)
    check_instruments(options.instruments, detector.instruments)
    return detector, replace(
        schedule,
        repeated_frames=detector.columns - 1,
        late_frames=last_age or 0,
        history_frames=detector.history_frames,
    )


def build_tuner(
    config: ModelConfig,
    options: StreamOptions,
    schedule: WindowSchedule,
    first_block: int,
    tuning: Tuning,
) -> Tuner:
    """Return the tuner of a stream that starts at a block. tuning: estimate at this block."""
    front_end, rate_hz = config.front_end, config.sample_rate
    if not isinstance(front_end, FilterbankConfig):
        return Tuner(rate_hz, 1, CONCERT_HZ)
    samples = schedule.first_sample(first_block), schedule.tuning_sample(first_block)
    return Tuner(rate_hz, front_end.bins_per_semitone, options.tuning_hz, *samples, tuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Guaranteed maximum delay of events in ms."""

    note_on_ms: float
    note_off_ms: float
    note_on_median_ms: float | None
    """Median delay. None in block mode, or if the model's card lacks ``usual_onset_age``."""


def guaranteed_delay(
    options: StreamOptions,
    config: ModelConfig,
    settings: TrackerSettings,
    detector: EventDetector,
    resampler_ms: float,
) -> Delay:
    hop_ms = 1000.0 * HOP / config.sample_rate
    held_ms = options.actual_lookahead_ms(config.sample_rate) + resampler_ms
    held_ms += (options.frames_per_window - 1) * hop_ms
    median_ms = None
    if options.mode is Mode.ANYTIME and settings.usual_onset_age is not None:
        # Time from a note's onset to the end of the window that decides it.
        wait_frames = (options.frames_per_window - 1) / 2  # mean wait for the block
        usual_frames = config.min_lookahead_hops + settings.usual_onset_age + wait_frames
        median_ms = round(usual_frames * hop_ms + resampler_ms, 3)
    return Delay(
        note_on_ms=held_ms + detector.on_delay_frames * hop_ms,
        note_off_ms=held_ms + detector.off_delay_frames * hop_ms,
        note_on_median_ms=median_ms,
    )
