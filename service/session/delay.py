"""The delay of a stream's events, from the time a sound is sent until its event can be known:

    look-ahead        audio after a frame that the model sees before deciding that frame
    + block           a frame waits until the other frames of its block are due
    + resampler       samples that the anti-alias filter holds back
    + tracker         frames after an onset that confirm a peak, or after an end that rule out
                      a dip (ends need more)

``ready`` states the sum for each kind of event; network and computing time come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.config import HOP
from service.protocol.options import StreamOptions


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
    *,
    model_rate_hz: int,
    resampler_ms: float,
    on_frames: float,
    off_frames: float,
    usual_on_frames: float | None,
) -> Delay:
    """The delay of a stream with these options, without computing time.

    Args:
        resampler_ms: ``resample.latency_ms`` of the two rates.
        on_frames, off_frames: ``Tracker.on_delay_frames`` and ``Tracker.off_delay_frames``.
        usual_on_frames: in anytime mode, median frames from a note's time to the end of the window
            that decides it; None if unknown.
    """
    hop_ms = 1000.0 * HOP / model_rate_hz
    held_ms = options.actual_lookahead_ms(model_rate_hz) + resampler_ms
    held_ms += (options.frames_per_window - 1) * hop_ms
    median_ms = None
    if usual_on_frames is not None:
        median_ms = round(usual_on_frames * hop_ms + resampler_ms, 3)
    return Delay(
        note_on_ms=held_ms + on_frames * hop_ms,
        note_off_ms=held_ms + off_frames * hop_ms,
        resampler_ms=resampler_ms,
        note_on_median_ms=median_ms,
    )
