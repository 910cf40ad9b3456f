"""Single lines and polyphony: each is read by its own tracker, which hand over to each other.

The newest frame tells who decides what is undecided (``service.notes.second_line``). The tracker of
lines decides later than that of several: when a second line has been heard for ``second_frames``,
fewer than that delay, the latter takes over at a frame before its entry. So no beginning is lost,
and no frame is decided twice.

The tracker that takes over goes on from the notes that sound, as a resumed one does.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import Known, Tracker
from service.notes.events import NoteEvent
from service.notes.line import LineTracker
from service.notes.resume import ResumePoint
from service.notes.second_line import SecondLine
from service.notes.tracker import NoteTracker
from service.notes.tracker_settings import TrackerSettings


class HandoverTracker(Tracker):
    """Notes of a stream of one line or of several; needs ``TrackerSettings.line`` and an onset
    head."""

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...]
    ) -> None:
        self._heads = heads
        self._expected: Mapping[str, float] = {}
        self._tracker: Tracker | None = None
        trackers = [kind(settings, frame_seconds, heads) for kind in _KINDS]
        self._waits = [-tracker.decided for tracker in trackers]  # frames that a decision takes
        self._longest = max(self._waits)
        super().__init__(settings, frame_seconds, heads, weighed_after=self._longest)
        assert settings.line is not None
        self._second = SecondLine(settings.line, heads)
        self._several = False
        self._decided = -self._longest
        self._begun: dict[int, NoteEvent] = {}  # the notes that sound, by note_id
        self._past = max(tracker.history_frames for tracker in trackers) + self._longest
        silence = np.zeros((self._n_heads, 0, PITCHES), np.float32)
        self._recent = deque([silence])  # blocks that are stepped over, of the latest frames
        self._runs: deque[tuple[bool, NDArray[np.float32]]] = deque()  # the next frames
        self._left = 0  # frames of the latest run that are not stepped over
        self.history_frames = max(self._second.history_frames + self._longest, self._past)
        self.on_delay_frames = max(tracker.on_delay_frames for tracker in trackers)
        # What is decided at a hand-over is late.
        self.off_delay_frames = max(
            tracker.off_delay_frames + self._longest - wait
            for tracker, wait in zip(trackers, self._waits, strict=True)
        )

    @property
    def decided(self) -> int:
        return self._decided

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        super().resume(first_frame, replace(point, sounding=()))
        self._begun = {event.note_id: event for event in point.sounding}
        self._decided = first_frame - self._longest

    def expect(self, weights: Mapping[str, float]) -> None:
        self._expected = weights
        if self._tracker is not None:
            self._tracker.expect(weights)

    def name(self, event: NoteEvent) -> None:
        if self._tracker is not None and event.note_id in self._begun:
            self._begun[event.note_id] = replace(event, kind="note_on")
            self._tracker.name(event)

    def read(self, block: NDArray[np.float32], new: int) -> None:
        first = 0
        for several, run in groupby(self._second.heard(block).tolist() if new else ()):
            end = first + len(list(run))
            self._runs.append((several, block[:, first:end]))
            first = end

    def step(self) -> list[NoteEvent]:
        events: list[NoteEvent] = []
        if not self._left:
            several, frames = self._runs.popleft()
            self._left = frames.shape[1]
            if self._pushed >= self._resumed:
                if self._tracker is None or several is not self._several:
                    events += self._take_over(several)
                self._taken.read(frames, self._left)
            self._several = several
            self._recent.append(frames)
            while sum(block.shape[1] for block in islice(self._recent, 1, None)) >= self._past:
                self._recent.popleft()
        if self._tracker is not None:
            events += self._tracker.step()
            self.dynamics = self._tracker.dynamics
        self._left -= 1
        self._pushed += 1
        self._decided = max(self._decided, self._pushed - self._waits[self._several])
        return self._kept(events)

    def finish(self, end_frame: int) -> Known:
        events = [] if self._tracker else self._kept(self._take_over(self._several))
        return [*((self._pushed, event) for event in events), *self._taken.finish(end_frame)]

    def close(self) -> list[NoteEvent]:
        if self._tracker is not None:
            return self._tracker.close()
        return [
            replace(on, kind="note_off", frame=frame, time_s=self._seconds(frame))
            for on in sorted(self._begun.values(), key=lambda on: on.pitch)
            for frame in [max(self._decided, on.frame + 1)]
        ]

    @property
    def _taken(self) -> Tracker:
        assert self._tracker is not None
        return self._tracker

    def _take_over(self, several: bool) -> list[NoteEvent]:
        """Another tracker decides the first undecided frame and those after it; returns what it
        makes known of the frames that were stepped over."""
        self._tracker = tracker = _KINDS[several](self.settings, self._frame_seconds, self._heads)
        decides = max(0, self._decided + self._waits[several])  # when this frame arrives
        recent = np.concatenate(self._recent, axis=1)
        oldest = self._pushed - recent.shape[1]
        first = max(oldest, decides - tracker.history_frames)
        sounding = tuple(self._begun.values())
        tracker.resume(
            first,
            ResumePoint(
                frames=decides, notes=self._notes, sounding=sounding, dynamics=self.dynamics
            ),
        )
        tracker.expect(self._expected)
        return [event for _, event in tracker.push(recent[:, first - oldest :])]

    def _kept(self, events: list[NoteEvent]) -> list[NoteEvent]:
        for event in events:
            if event.kind == "note_on":
                self._notes += 1
                self._begun[event.note_id] = event
            else:
                del self._begun[event.note_id]
        return events


_KINDS: tuple[Callable[..., Tracker], Callable[..., Tracker]] = (LineTracker, NoteTracker)
"""Of one line, of several."""
