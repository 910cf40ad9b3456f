"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

When frame n has arrived, with r ``onset_radius_frames``, a pitch

* begins at frame n - r if the onset probability peaks above its threshold there and the frame
  probability confirms it by frame n; in models without an onset head, if it is silent and the frame
  probability has confirmed it in all of these frames;
* is struck again if it already sounds and such a peak occurs: the old note ends where the evidence
  that it sounds was greatest (``service.notes.base_tracker``), or else where the new one begins;
* ends by that evidence, of the frames up to n - r.

Events are returned in the order in which they become known: a note may end before beginnings of
other pitches that were returned earlier. Events of one pitch are in time order. Live events cannot
be retracted, so a note that turns out to be short gets the minimum length.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import WAIT, Known, Tracker, onset_shift, peaks
from service.notes.events import NoteEvent
from service.notes.resume import ResumePoint
from service.notes.tracker_settings import TrackerSettings


class NoteTracker(Tracker):
    """Notes of a stream whose frames are each seen once, with their full look-ahead."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
    ) -> None:
        self._delay = settings.onset_radius_frames
        super().__init__(settings, frame_seconds, heads, weighed_after=self._delay)
        self._past = 2 * self._delay  # frames of history; silence precedes the stream
        self._recent = np.zeros((self._n_heads, self._past, PITCHES), np.float32)
        self._first = 0  # frame that is known
        self._new = 0  # frames that are read but not stepped over
        self._struck = np.zeros((0, PITCHES), np.bool_)
        self.history_frames = self._past + WAIT
        # Half a frame more than the wait itself: an onset may lie that far before its frame.
        self.on_delay_frames = self._delay + 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, self._delay + WAIT)

    @property
    def decided(self) -> int:
        return max(self._pushed, self._resumed) - self._delay

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        self._first = first_frame
        super().resume(first_frame, point)

    def read(self, block: NDArray[np.float32], new: int) -> None:
        kept = self._recent[:, self._recent.shape[1] - self._past :]
        self._recent = np.concatenate([kept, block], axis=1)
        self._new = new
        delay, first = self._delay, self._past - self._delay
        frame = self._recent[self._frame]

        def confirmed(reduce: np.ufunc) -> NDArray[np.bool_]:
            """Whether the greatest or least frame probability of frames n - r to n suffices."""
            shifts = [frame[first + shift : first + shift + new] for shift in range(delay + 1)]
            enough: NDArray[np.bool_] = reduce.reduce(shifts) >= self.settings.frame_on_threshold
            return enough

        if self._onset is None:
            self._struck = confirmed(np.minimum)
        else:
            values = self._recent[self._onset, first - delay : first + new + delay]
            found = peaks(values, delay, self.settings.least_onset_threshold)[delay : delay + new]
            self._struck = found & confirmed(np.maximum)

    def step(self) -> list[NoteEvent]:
        i = self._struck.shape[0] - self._new
        at = self._past + i - self._delay  # the column of ``frame``
        frame = self._pushed - self._delay
        events: list[NoteEvent] = []
        if self._pushed >= self._resumed and self._struck[i].any():
            events = self._strike(frame, at, np.flatnonzero(self._struck[i]).tolist())
        if frame >= self._first:  # no silence instead of frames that are not known
            events += self._weigh(self._recent, at)
        self._pushed += 1
        self._new -= 1
        return events

    def _strike(self, frame: int, at: int, pitches: list[int]) -> list[NoteEvent]:
        """What peaks of these pitches at the frame begin and end."""
        ends: list[NoteEvent] = []
        begins: list[tuple[float, int, float]] = []  # time in frames, pitch, probability
        head = self._frame if self._onset is None else self._onset
        for pitch in pitches:
            chance = float(self._recent[head, at, pitch])
            if self._onset is not None:
                chance = self._chance(self._recent, at, pitch)
            if not self._enough(pitch, frame, chance):
                continue
            shift = self.settings.onset_correction_frames
            if self._onset is not None:
                shift += onset_shift(self._recent[head, at - 1 : at + 2, pitch])
            begin = max(0.0, frame + shift)
            begins.append((begin, pitch, chance))
            if pitch in self._sounding:
                ends.append(self._end_at_best(pitch, frame, begin))
        ends.sort(key=lambda event: (event.time_s, event.pitch))
        begins.sort(key=lambda begin: (self._seconds(begin[0]), begin[1]))
        return ends + [
            self._begin(self._recent, at, frame, pitch, begin, chance)
            for begin, pitch, chance in begins
        ]

    def _enough(self, pitch: int, frame: int, chance: float) -> bool:
        """Whether a peak of so much begins a note."""
        if self._onset is None:
            return pitch not in self._sounding
        note = self._sounding.get(pitch)
        far = note is None or frame - note.event.frame >= self.settings.min_note_frames
        return far and chance >= self._least

    def finish(self, end_frame: int) -> Known:
        silence = np.zeros((self._n_heads, self._delay, PITCHES), np.float32)
        last = self.push(silence)
        return [*last, *((self._pushed, event) for event in self._end_all(end_frame))]
