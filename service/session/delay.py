"""The delay of a stream's events, from the time a sound is sent until its event can be known:

    look-ahead        audio after a frame that the model sees before deciding that frame
    + block           a frame waits until the other frames of its block are due
    + resampler       samples that the anti-alias filter holds back
    + tracker         frames after an onset that confirm a peak, or after an end that rule out
                      a dip (ends need more)

``ready`` states the sum for each kind of event; network and computing time come on top.
"""

from dataclasses import dataclass

from model.config import HOP, ModelConfig
from service.notes.listener import Listener
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import Mode, StreamOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Milliseconds from the time of an event until it is known, in the worst case, and the part of
    the resampler.

    Attributes:
        note_on_median_ms: in anytime mode, if measured for the model; the others are then upper
            bounds.
    """

    note_on_ms: float
    note_off_ms: float
    resampler_ms: float
    note_on_median_ms: float | None


def stated_delay(
    options: StreamOptions,
    config: ModelConfig,
    settings: TrackerSettings,
    listener: Listener,
    resampler_ms: float,
) -> Delay:
    """The delay of a stream with these options, without computing time.

    resampler_ms: ``resample.latency_ms`` of the two rates.
    """
    hop_ms = 1000.0 * HOP / config.sample_rate
    held_ms = options.actual_lookahead_ms(config.sample_rate) + resampler_ms
    held_ms += (options.frames_per_window - 1) * hop_ms
    median_ms = None
    if options.mode is Mode.ANYTIME and settings.usual_onset_age is not None:
        # From a note's time to the end of the window that decides it.
        wait_frames = (options.frames_per_window - 1) / 2  # for the block, on average
        usual_frames = config.newest_hops + settings.usual_onset_age + wait_frames
        median_ms = round(usual_frames * hop_ms + resampler_ms, 3)
    return Delay(
        note_on_ms=held_ms + listener.on_delay_frames * hop_ms,
        note_off_ms=held_ms + listener.off_delay_frames * hop_ms,
        resampler_ms=resampler_ms,
        note_on_median_ms=median_ms,
    )
