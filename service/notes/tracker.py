"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

While several lines play (``service.notes.lines``), or if nothing else is considered, with n the
newest frame and r ONSET_RADIUS, a pitch

* begins at frame n - r if the onset probability peaks above its threshold there and the frame
  probability confirms it by frame n;
* is struck again if it already sounds and such a peak occurs: the old note ends where the evidence
  that it sounds was greatest (``service.notes.base_tracker``), or else where the new one begins;
* ends by that evidence, of the frames up to n - r.

A single line is the best path, which decides frame n - A (AHEAD_FRAMES). A note of it begins at
the peak of its onset head in the r frames after its first, if there is one, and is struck again at
peaks of at least ``again_threshold``. When a second line enters, the frames from n - A on are
undecided, and several are heard in them after all; when it falls silent, the path goes on from the
last frame that is decided.

Events are returned in the order in which they become known: a note may end before beginnings of
other pitches that were returned earlier. Events of one pitch are in time order. Live events cannot
be retracted, so a note that turns out to be short gets the minimum length.
"""

import math

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes import lines
from service.notes.base_tracker import WAIT, Tracker
from service.notes.events import NoteEvent
from service.notes.frames import LatestFrames, confirmed, peaks
from service.notes.resume import ResumePoint
from service.notes.tracker_settings import ONSET_RADIUS, TrackerSettings


class NoteTracker(Tracker):
    """Notes of a stream whose frames are each seen once, with their full look-ahead."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
    ) -> None:
        """With ``TrackerSettings.line``, single lines are read as such."""
        super().__init__(settings, frame_seconds, heads, weighed_after=ONSET_RADIUS)
        self._lines = None
        self._ahead, self.history_frames = ONSET_RADIUS, WAIT
        if settings.line is not None:
            self._lines = lines.LineListener(settings.line, heads)
            self._ahead, self.history_frames = lines.AHEAD_FRAMES, lines.HISTORY_FRAMES
        # A line's note begins so late that frames before these would not be weighed.
        self._held_frames = max(settings.min_note_frames, self._ahead - ONSET_RADIUS)
        self._past = self._ahead + ONSET_RADIUS  # frames before a block
        self.history_frames += self._past
        self._frames = LatestFrames(len(heads), self._past)
        self._first = 0  # frame that is known
        self._decided = -self._ahead
        self._now_several = self._lines is None
        self._several: list[bool] = []  # of the block, as the next two
        self._struck: dict[int, list[int]] = {}  # pitches by column
        self._paths: lines.Paths | None = None
        # Half a frame more than the wait itself: an onset may lie that far before its frame.
        self.on_delay_frames = self._ahead + 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, ONSET_RADIUS + WAIT)

    @property
    def decided(self) -> int:
        return max(self._decided, self._resumed - self._ahead)

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        self._first = first_frame
        self._decided = first_frame - self._ahead
        super().resume(first_frame, point)

    def read(self, block: NDArray[np.float32], new: int) -> None:
        if self._lines is None:
            self._take(block, [True] * new)
        else:
            self._take(block, *self._lines.hear(block))

    def _take(
        self,
        block: NDArray[np.float32],
        several: list[bool],
        bias: NDArray[np.float32] | None = None,
    ) -> None:
        self._oldest = self._pushed - self._past
        self._known = self._frames.append(block)
        self._several = several
        frame, onset = self._known[self._frame], self._known[self._onset]
        struck = peaks(onset, ONSET_RADIUS, self.settings.least_onset_threshold)
        self._struck = {}
        if struck.any():
            struck &= confirmed(frame, ONSET_RADIUS, self.settings.frame_on_threshold)
            for at, pitch in np.argwhere(struck).tolist():
                self._struck.setdefault(at, []).append(pitch)
        if bias is not None and not all(several):
            assert self.settings.line is not None
            first = self._past - self._ahead
            self._paths = lines.best_paths(self.settings.line, frame[first:], onset[first:], bias)

    def step(self) -> list[NoteEvent]:
        i = self._pushed - self._oldest - self._past
        self._now_several = several = self._several[i]
        decided = self._pushed + 1 - (ONSET_RADIUS if several else self._ahead)
        events: list[NoteEvent] = []
        if self._pushed >= self._resumed:
            for frame in range(max(0, self._decided), decided):
                events += self._strike(frame) if several else self._follow(frame, i)
        self._decided = max(self._decided, decided)
        if not several:  # the notes of a line sound as long as its path says
            for note in self._sounding.values():
                held = note.event.frame + self._held_frames
                note.fallen, note.best = 0.0, max(self._pushed + 1 - ONSET_RADIUS, held)
        elif self._pushed - ONSET_RADIUS >= self._first:  # no silence instead of unknown frames
            events += self._weigh()
        self._pushed += 1
        return events

    # -- several lines ----------------------------------------------------------------------------

    def _strike(self, frame: int) -> list[NoteEvent]:
        """What peaks at the frame begin and end."""
        ends: list[NoteEvent] = []
        begins: list[tuple[float, int, float]] = []  # time in frames, pitch, probability
        for pitch in self._struck.get(frame - self._oldest, ()):
            note, chance = self._sounding.get(pitch), self._chance(frame, pitch)
            lately = note and frame - note.event.frame < self.settings.min_note_frames
            if chance < self._least or lately:
                continue
            begin = self._onset_time(frame, pitch)
            begins.append((begin, pitch, chance))
            if note:
                ends.append(self._end_at_best(pitch, frame, begin))
        ends.sort(key=lambda event: (event.time_s, event.pitch))
        begins.sort(key=lambda begin: (self._seconds(begin[0]), begin[1]))
        return ends + [self._begin(frame, pitch, time, chance) for time, pitch, chance in begins]

    # -- a single line ----------------------------------------------------------------------------

    def _follow(self, frame: int, i: int) -> list[NoteEvent]:
        """What the i-th of the paths, which begins at the frame, begins and ends."""
        newest = max((note.event.frame for note in self._sounding.values()), default=-math.inf)
        if frame - newest < lines.LEAST_FRAMES:
            return []
        if self._paths is None:
            return [self._end(pitch, frame, frame) for pitch in sorted(self._sounding)]
        pitches, sounding, silents, begun = self._paths
        silent, best = silents[i], int(begun[i].argmax())
        if not self._sounding:
            begins = begun[i, best] > silent and self._heard(frame, pitches[best])
            return self._begin_after(frame, pitches[best]) if begins else []
        notes = dict(zip(pitches, sounding[i].tolist(), strict=True))
        gains = {pitch: notes.get(pitch, -math.inf) for pitch in self._sounding}
        # There are others if several lines have left them.
        held, *others = sorted(gains, key=lambda pitch: (-gains[pitch], pitch))
        events = [self._end(other, frame, frame) for other in others]
        if begun[i, best] > max(gains[held], silent):
            events += self._begin_after(frame, pitches[best])
        elif silent > gains[held]:
            events.append(self._end(held, frame, frame))
        elif self._struck_again(frame, held):
            events += self._begin_after(frame, held)
        return events

    def _heard(self, frame: int, pitch: int) -> bool:
        """Whether a note out of silence is surely enough heard."""
        at = frame - self._oldest
        near = slice(max(0, pitch - 1), pitch + 2)
        values = self._known[self._frame, at : at + self._ahead + 1, near]
        return bool(values.max(axis=1).mean() >= lines.LEAST_MEAN)

    def _struck_again(self, frame: int, pitch: int) -> bool:
        assert self.settings.line is not None
        onset = self._onsets(frame, pitch)[:, None]
        return bool(peaks(onset, ONSET_RADIUS, self.settings.line.again_threshold)[ONSET_RADIUS])

    def _begin_after(self, frame: int, pitch: int) -> list[NoteEvent]:
        """The note_on at the onset soon after a frame, or else there, and before it the note_off of
        the note that sounds until then."""
        near = self._onsets(frame, pitch)[ONSET_RADIUS:]
        time_frames = max(0.0, frame + self.settings.onset_correction_frames)
        if near.max() >= lines.LEAST_ONSET:
            frame += int(near.argmax())
            time_frames = self._onset_time(frame, pitch)
        ends = [self._end(sounding, frame, time_frames) for sounding in list(self._sounding)]
        at = frame - self._oldest
        confidence = float(self._known[self._frame, at : at + ONSET_RADIUS + 1, pitch].max())
        return [*ends, self._begin(frame, pitch, time_frames, confidence)]

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """The last frames are read as the newest one was."""
        wait = ONSET_RADIUS if self._now_several else self._ahead
        silence = np.zeros((self._n_heads, wait, PITCHES), np.float32)
        bias = None if self._lines is None else self._lines.hear(silence)[1]
        self._take(silence, [self._now_several] * wait, bias)
        events = [event for _ in range(wait) for event in self.step()]
        return events + self._end_all(end_frame)
