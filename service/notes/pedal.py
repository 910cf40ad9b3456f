"""The sustain pedal: from its probability curve to presses."""

from service.notes.events import PedalEvent
from service.protocol.midi_file import PEDALLED as PEDALLED


class PedalTracker:
    """Follows one pedal with hysteresis: down above one threshold, up below a lower one."""

    def __init__(self, on_threshold: float, off_threshold: float, frame_seconds: float) -> None:
        self._on = on_threshold
        self._off = off_threshold
        self._frame_seconds = frame_seconds
        self.down = False

    def moves(self, probability: float) -> bool:
        """Whether this is beyond the threshold that ends its state."""
        return probability < self._off if self.down else probability >= self._on

    def step(self, frame: int, probability: float, present: bool = True) -> list[PedalEvent]:
        """Process the next frame.

        Args:
            probability: that the pedal is down.
            present: whether an instrument with a pedal plays; without one nothing is pressed.
        """
        moves = self.moves(probability) and (self.down or present)
        return [self._move(frame)] if moves else []

    def close(self, frame: int) -> list[PedalEvent]:
        return [self._move(frame)] if self.down else []

    def _move(self, frame: int) -> PedalEvent:
        self.down = not self.down
        return PedalEvent(self.down, frame, round(frame * self._frame_seconds, 6))
