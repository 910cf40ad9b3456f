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
    """The parts of an event's delay in milliseconds, each in the worst case."""

    lookahead_ms: float
    block_ms: float
    resampler_ms: float
    tracker_on_ms: float
    tracker_off_ms: float
    note_on_median_ms: float | None = None
    """In anytime mode, if measured for the model; the others are then upper bounds."""

    @property
    def note_on_ms(self) -> float:
        """From the time of a note_on until it is known."""
        return self.lookahead_ms + self.block_ms + self.resampler_ms + self.tracker_on_ms

    @property
    def note_off_ms(self) -> float:
        """From the time of a note_off until it is known."""
        return self.note_on_ms + self.tracker_off_ms - self.tracker_on_ms


def stated_delay(
    options: StreamOptions,
    *,
    model_rate_hz: int,
    resampler_ms: float,
    tracker_on_frames: float,
    tracker_off_frames: float,
    usual_on_frames: float | None = None,
) -> Delay:
    """The delay of a stream with these options, without computing time.

    Args:
        model_rate_hz: sample rate of the model.
        resampler_ms: ``resample.latency_ms`` of the two rates.
        tracker_on_frames: ``Tracker.on_delay_frames``.
        usual_on_frames: in anytime mode, median frames from a note's time to the end of the window
            that decides it; None if unknown.
        tracker_off_frames: ``Tracker.off_delay_frames``.
    """
    hop_ms = 1000.0 * HOP / model_rate_hz
    median_ms = None
    if usual_on_frames is not None:
        median_ms = round(usual_on_frames * hop_ms + resampler_ms, 3)
    return Delay(
        lookahead_ms=options.actual_lookahead_ms(model_rate_hz),
        block_ms=(options.frames_per_window - 1) * hop_ms,
        resampler_ms=resampler_ms,
        tracker_on_ms=tracker_on_frames * hop_ms,
        tracker_off_ms=tracker_off_frames * hop_ms,
        note_on_median_ms=median_ms,
    )
