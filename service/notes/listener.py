"""All that is made of a stream's probabilities: notes, their instruments, the sustain pedal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.anytime import AnytimeTracker
from service.notes.belief import Belief
from service.notes.events import Event, NoteEvent, PedalEvent
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
        last_age: int | None = None,
    ) -> None:
        """Args:
        frame_seconds: time from frame to frame.
        heads: names of the rows of the probabilities (see ``model.config.HEADS``); "frame" must
            be there.
        instruments: the classes that a note may be of; none: all that the heads tell.
        last_age: in anytime mode, frames from a frame to the newest of its window when it has its
            full look-ahead.
        """
        self._tracker: NoteTracker | AnytimeTracker
        if last_age is None:
            self._tracker = NoteTracker(settings, frame_seconds, heads)
        else:
            self._tracker = AnytimeTracker(settings, frame_seconds, heads, last_age)
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
    def columns(self) -> int:
        """Frames of each window that are looked at in anytime mode."""
        return self._tracker.columns if isinstance(self._tracker, AnytimeTracker) else 1

    @property
    def free(self) -> Mapping[int, int]:
        """In anytime mode, what another listener has to know of pitches that are silent."""
        return self._tracker.free if isinstance(self._tracker, AnytimeTracker) else {}

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
        free: Mapping[int, int] | None = None,
    ) -> None:
        """Go on where another listener to the same stream stopped after ``frames`` frames.

        Args:
            first_frame: the frame that will be pushed first, at most ``frames``.
            notes: notes that had begun.
            sounding: the note_on of those that had not ended, as they were named last.
            belief, pedal, free: what the other one's properties said.
        """
        sounding = tuple(sounding)
        self._resumed = frames
        if isinstance(self._tracker, AnytimeTracker):
            self._tracker.resume(first_frame, frames, notes, sounding, free or {})
        else:
            self._tracker.resume(first_frame, frames, notes, sounding)
        self._namer.resume(first_frame, frames, belief, sounding)
        self._pedal.down = pedal

    def push(self, first_frame: int, probabilities: NDArray[np.float32]) -> list[Event]:
        """Take the next frames, shape [heads, n, 128]; return the events that are known now.

        In anytime mode, take the next frame with those before it (see ``AnytimeTracker.push``).

        Raises:
            ValueError: frames are missing or repeated, or the shape is another.
        """
        if isinstance(self._tracker, AnytimeTracker):
            return self._push_window(self._tracker, first_frame, probabilities)
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
                events += self._step_pedal(first_frame + i, curve[i])
        return events

    def _push_window(
        self, tracker: AnytimeTracker, frame: int, window: NDArray[np.float32]
    ) -> list[Event]:
        found = tracker.push(frame, window)
        known = np.nan_to_num(window, nan=0.0)
        self._namer.remember_again(known, tracker.columns)
        if frame < self._resumed:
            return []
        events: list[Event] = [*self._namer.step(frame, found)]
        full = tracker.columns - 1 - tracker.last_age  # the column with its full look-ahead
        if self._pedal_row and frame >= tracker.last_age:
            probability = float(known[self._pedal_row, full, _ANY_PITCH])
            events += self._step_pedal(frame - tracker.last_age, probability)
        return events

    def _step_pedal(self, frame: int, probability: float) -> list[PedalEvent]:
        present = not self.instruments or self.belief.share(PEDALLED) >= PRESENT
        return self._pedal.step(frame, probability, present)

    def finish(self, end_frame: int) -> list[Event]:
        """The stream has ended before ``end_frame``: decide the last frames as if silence followed,
        and end all notes there."""
        events: list[Event] = []
        if isinstance(self._tracker, AnytimeTracker):
            last = [(end_frame, event) for event in self._tracker.finish(end_frame)]
        else:
            last = self._tracker.finish_known(end_frame)
        for frame, event in last:
            events += self._namer.step(frame, [event])
        return events + [*self._pedal.close(end_frame)]

    def close(self) -> list[Event]:
        """End all notes at the first frame of which it is not known what begins there."""
        events: list[Event] = []
        for event in self._tracker.close():
            events += self._namer.step(event.frame, [event])
        return events + [*self._pedal.close(self._tracker.decided)]
