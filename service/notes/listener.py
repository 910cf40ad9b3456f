"""All that is made of a stream's probabilities: notes, their instruments, the sustain pedal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.belief import Belief
from service.notes.events import Event, NoteEvent
from service.notes.naming import InstrumentNamer
from service.notes.pedal import PEDALLED, PRESENT, PedalTracker
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings

_ANY_PITCH = PITCHES // 2  # the pedal's row is the same at all of them


class Listener:
    """A note tracker, whose notes are named, beside a pedal tracker. Strictly causal and pure.

    The order of the events is that of the frames that made them known, whatever the blocks.
    """

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...],
        instruments: tuple[str, ...] = (),
    ) -> None:
        """Args:
        frame_seconds: time from frame to frame.
        heads: names of the rows of the probabilities (see ``model.config.HEADS``); "frame" must
            be there.
        instruments: the classes that a note may be of; none: all that the heads tell.
        """
        self._tracker = NoteTracker(settings, frame_seconds, heads)
        self._namer = InstrumentNamer(heads, frame_seconds, instruments)
        self._pedal = PedalTracker(
            settings.pedal_on_threshold, settings.pedal_off_threshold, frame_seconds
        )
        self._pedal_row = heads.index("pedal") if "pedal" in heads else None
        self._resumed = 0  # frames before this one were decided elsewhere
        self.on_delay_frames = self._tracker.on_delay_frames
        self.off_delay_frames = self._tracker.off_delay_frames

    @property
    def history_frames(self) -> int:
        """Frames pushed last that bear on what is decided next."""
        return max(self._tracker.history_frames, self._namer.history_frames)

    @property
    def instruments(self) -> tuple[str, ...]:
        """The classes that a note may be of; none where the network does not tell them."""
        return self._namer.classes

    @property
    def belief(self) -> Belief:
        """Which instruments are in the room."""
        return self._namer.belief

    @property
    def pedal(self) -> bool:
        """Whether the pedal is down."""
        return self._pedal.down

    def resume(
        self,
        first_frame: int,
        frames: int,
        notes: int,
        sounding: Iterable[NoteEvent],
        belief: Belief,
        pedal: bool,
    ) -> None:
        """Go on where another listener to the same stream stopped after ``frames`` frames.

        Args:
            first_frame: the frame that will be pushed first, at most ``frames``.
            notes: notes that had begun.
            sounding: the note_on of those that had not ended, as they were named last.
            belief, pedal: what the other one's properties said.
        """
        sounding = tuple(sounding)
        self._resumed = frames
        self._tracker.resume(first_frame, frames, notes, sounding)
        self._namer.resume(first_frame, frames, belief, sounding)
        self._pedal.down = pedal

    def push(self, first_frame: int, probabilities: NDArray[np.float32]) -> list[Event]:
        """Take the next frames, shape [heads, n, 128]; return the events that are known now.

        Raises:
            ValueError: frames are missing or repeated, or the shape is another.
        """
        found = defaultdict(list)
        for frame, event in self._tracker.push_known(first_frame, probabilities):
            found[frame].append(event)
        known = np.nan_to_num(probabilities, nan=0.0)
        self._namer.remember(known)
        curve = known[self._pedal_row, :, _ANY_PITCH].tolist() if self._pedal_row else []
        events: list[Event] = []
        for i in range(max(0, self._resumed - first_frame), probabilities.shape[1]):
            events += self._namer.step(first_frame + i, found[first_frame + i])
            if curve:
                present = not self.instruments or self.belief.share(PEDALLED) >= PRESENT
                events += self._pedal.step(first_frame + i, curve[i], present)
        return events

    def finish(self, end_frame: int) -> list[Event]:
        """The stream has ended before ``end_frame``, the next that would be pushed: decide the
        last frames as if silence followed, and end all notes there."""
        events: list[Event] = []
        for frame, event in self._tracker.finish_known(end_frame):
            events += self._namer.step(frame, [event])
        return events + [*self._pedal.close(end_frame)]

    def close(self) -> list[Event]:
        """End all notes at the first frame of which it is not known what begins there."""
        events: list[Event] = []
        for event in self._tracker.close():
            events += self._namer.step(event.frame, [event])
        return events + [*self._pedal.close(self._tracker.decided)]
