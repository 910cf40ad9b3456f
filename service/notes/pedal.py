"""The sustain pedal: from its probability curve to presses."""

from collections import deque

from service.notes.events import PedalEvent
from service.notes.tracker_settings import TrackerSettings

MEAN_FRAMES = 8
"""The curve is smoothed over this many frames (93 ms), less than a foot needs: the network flickers
where a pedal is half down."""


class PedalTracker:
    """Follows one pedal with hysteresis: the mean of the latest MEAN_FRAMES probabilities presses
    it at one threshold and lifts it below another. Presses and lifts are dated to the middle of
    these frames, so they are as late as early."""

    def __init__(self, settings: TrackerSettings, frame_seconds: float) -> None:
        self._settings = settings
        self._frame_seconds = frame_seconds
        self._latest = deque([0.0] * MEAN_FRAMES, MEAN_FRAMES)  # silence precedes a stream
        self.down = False

    def hear(self, probability: float) -> bool:
        """Takes the next frame's probability that the pedal is down; returns whether the mean is
        now beyond the threshold that ends the pedal's state."""
        self._latest.append(probability)
        mean = sum(self._latest) / MEAN_FRAMES
        if self.down:
            return mean < self._settings.pedal_off_threshold
        return mean >= self._settings.pedal_on_threshold

    def move(self, frame: int) -> PedalEvent:
        """Presses or lifts the pedal, given the frame that was heard last."""
        return self._moved(max(0, frame - (MEAN_FRAMES - 1) // 2))

    def close(self, frame: int) -> list[PedalEvent]:
        """Lifts a pedal that is down as the stream ends."""
        return [self._moved(frame)] if self.down else []

    def _moved(self, frame: int) -> PedalEvent:
        self.down = not self.down
        return PedalEvent(self.down, frame, round(frame * self._frame_seconds, 6))
