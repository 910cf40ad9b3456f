"""Windows of probabilities to notes that begin as soon as the evidence suffices.

Successive windows predict the same frames again: the newest with almost no future audio, older ones
with more. The tracker reads [heads, columns, 128] of each: its newest frame n and the columns - 1
before it. A window with several new frames is read as if one had ended at each of them
(``push_block``); frames are older than a then, except at the last. For one pitch, let

    o_n[f], y_n[f]    the onset and frame probability that window n gives frame f
    p_n[f]            the probability that a note begins at f, a peak of o_n: o_n[f] itself, or what
                      a classifier makes of it (``service.notes.onsets``), which reads window n, and
                      frames before n - A as earlier windows gave them with their full look-ahead
    a = n - f         the age of the frame in that window
    A                 the age at which a frame has its full look-ahead (``last_age``)
    T(a)              the onset threshold for that age (``early_onset_thresholds``)
    r, m, R           ``onset_radius_frames``, ``min_note_frames``, ``release_frames``
    free              the first frame that no earlier event of the pitch has claimed
                      (``first_free_frames``): max(m, 2 r + 1) frames after a beginning, or the
                      frame of an end

When window n arrives, the pitch

* begins at frame f, n - A <= f <= n, if

      f >= free,    p_n[f] >= T(n - f),    max of y_n[f ... min(f + r, n)] >= frame_on_threshold,
      o_n[f - k] < o_n[f] for k = 1 ... r,    o_n[f] >= o_n[f + k] for k = 1 ... r, f + k <= n.

  Its time is that of the peak, interpolated between frames (``tracking.onset_shift``);
* is struck again if it sounds and the same holds, with at least ``restrike_threshold``. The old
  note ends where its frame probability fell just before, or else where the new one begins;
* ends at the first frame f >= max(free, n - A - R + 1) such that y_n[f ... f + R - 1] lie below
  frame_off_threshold (``pedal_frame_off_threshold`` where the pedal is down) and have the age
  ``END_AGE``, or A if that is less: the probability of younger frames is often still too low;
* ends at frame n - A if the offset probability peaks there (``offset_threshold``), and begins
  there, if silent, after a long run of high frame probability (``frame_start_threshold``). These
  two wait for the full look-ahead, as in ``service.notes.tracker``.

T falls with age to T(A) = onset_threshold: a clear onset begins its note at once, a doubtful one
waits for more future audio, at most the full look-ahead. ``training.shipping.early`` chooses T(a)
on validation material: the lowest threshold at which at most 3 % of the peaks of that age are false
notes that the full look-ahead would not have begun. So early notes are about as reliable as late
ones.

The peak of one onset moves by up to r frames from window to window, either way; ``free`` keeps it
from beginning a second note. Events are never retracted. They come in the order in which they are
decided, which between pitches need not be that of their times; of one pitch, each note ends before
the next begins.
"""

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes import onsets
from service.notes.events import NoteEvent
from service.notes.resume import ResumePoint
from service.notes.tracker_settings import TrackerSettings
from service.notes.tracking import Known, Tracker, onset_shift

END_AGE = 4
"""Least age in frames at which a frame ends a note. With 0, onset + offset F1 and frame F1 of
rendered validation pieces are 0.02 lower; with 8, 0.02 higher, and ends come 46 ms later."""

Chance = tuple[int, int, float]
"""Frames from n - A to a peak, its pitch, and the probability that a note begins there."""


class AnytimeTracker(Tracker):
    """Notes of a stream whose frames are seen again in successive windows.

    Decisions depend on the newest window, on ``free``, on the notes that sound and, with a
    onset classifier or a ``frame_start_threshold``, on the ``history_frames`` windows before.
    """

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...], last_age: int
    ) -> None:
        """last_age: A, frames."""
        super().__init__(settings, frame_seconds, heads)
        self.last_age = last_age
        radius = settings.onset_radius_frames
        self.columns = 1 + last_age + max(radius, settings.release_frames - 1)
        # Oldest first, as the columns of a window are.
        ages = np.arange(self.columns)[::-1]
        self._begin_from = np.array([settings.onset_threshold_at(a, last_age) for a in ages])
        self._again = settings.restrike_threshold or 0.0
        self._last = self.columns - 1 - last_age  # column of the frames with full look-ahead
        self._least_frames = max(settings.min_note_frames, 2 * radius + 1)
        self._frames = onsets.WindowFrames(len(heads)) if self._classifier else None
        self._high = np.zeros(PITCHES, np.int64)  # frames at full look-ahead above it, in a row
        self._free = np.zeros(PITCHES, np.int64)
        start_frames = self._start_frames if self._start_threshold is not None else 0
        self.history_frames = max(start_frames, onsets.HISTORY if self._classifier else 0)
        # An onset may lie half a frame before its frame, before its time is corrected.
        self.on_delay_frames = 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, settings.release_frames - 1)

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        for pitch, frame in point.free.items():
            self._free[pitch] = frame
        super().resume(first_frame, point)

    @property
    def first_free_frames(self) -> dict[int, int]:
        """By silent pitch, the first unclaimed frame, if a coming window may begin a note there: it
        bounds the note's time too."""
        oldest = self._pushed - self.last_age
        pitches = np.flatnonzero(self._free >= max(1, oldest)).tolist()
        return {p: int(self._free[p]) for p in pitches if p not in self._sounding}

    @property
    def decided(self) -> int:
        return max(self._pushed, self._resumed)

    def push(self, window: NDArray[np.float32]) -> Known:
        """Process the next window, n; return the events that it decides.

        Args:
            window: [heads, columns, 128], frames n - columns + 1 ... n, those before the stream
                included. After the end of a stream the columns beyond it are left out.
        """
        newest_frame, given = self._pushed, window.shape[1]
        first = newest_frame - self.columns + 1  # the frame of column 0
        known = window
        if first < 0 or given < self.columns:  # before the stream, or after it
            known = np.zeros((self._n_heads, self.columns, PITCHES), np.float32)
            known[:, max(0, -first) : given] = window[:, max(0, -first) :]
        self._count_high(first, known)
        chances = self._chances(first, known)
        self._pushed += 1
        if self._pushed <= self._resumed:  # decided elsewhere
            return []
        events = [*self._begin_all(first, known, chances), *self._end_those(first, known, given)]
        return [(newest_frame, event) for event in events]

    def push_block(self, block: NDArray[np.float32], new: int) -> Known:
        steps = (self.push(block[:, i : i + self.columns]) for i in range(new))
        return list(chain.from_iterable(steps))

    def onset_peaks(self, window: NDArray[np.float32]) -> list[tuple[int, int, float]]:
        """(age, pitch, probability) of what the window would begin were every threshold
        ``onset_threshold`` and every frame free; to choose the thresholds with. Instead of
        ``push``, for each window in order."""
        known = np.zeros((self._n_heads, self.columns, PITCHES), np.float32)
        known[:, : window.shape[1]] = window
        chances = self._chances(0, known)
        return [
            (self.last_age - row, pitch, chance)
            for row, pitch, chance in chances
            if chance >= self.settings.onset_threshold
            and self._confirmed(known, self._last + row, pitch)
        ]

    def finish(self, end_frame: int) -> Known:
        """End all notes there; all windows that show a frame before it have been pushed."""
        return [(end_frame, event) for event in self._end_all(end_frame)]

    # -- what a window decides --------------------------------------------------------------------

    def _chances(self, first: int, known: NDArray[np.float32]) -> list[Chance]:
        """p_n[f] of every free peak f = n - A ... n."""
        if self._onset is None:
            return []
        radius = self.settings.onset_radius_frames
        found = onsets.peaks(known[self._onset], radius, self._candidate)[self._last :]
        found &= first + self._last + np.arange(len(found))[:, None] >= self._free
        seen, at = known, self._last
        if self._frames:
            seen, at = self._frames.around(known[:, self._last :]), onsets.HISTORY
        judged = self._judged(seen, found, at, at + len(found))
        return list(zip(*(part.tolist() for part in judged), strict=True))

    def _begin_all(
        self, first: int, known: NDArray[np.float32], chances: list[Chance]
    ) -> list[NoteEvent]:
        """first: the frame of the window's first column."""
        events: list[NoteEvent] = []
        for row, pitch, chance in chances:
            at = self._last + row
            if chance < self._begin_from[at]:
                continue
            if pitch in self._sounding and chance < self._again:
                continue
            if first + at >= self._free[pitch] and self._confirmed(known, at, pitch):
                shift = onset_shift(known[self._onset, at - 1 : at + 2, pitch])
                shift += self.settings.onset_correction_frames
                events += self._strike(first + at, shift, pitch, known, chance)
        if self._start_threshold is not None and first + self._last >= 0:
            for pitch in (self._high >= self._start_frames).nonzero()[0].tolist():
                if pitch in self._sounding or first + self._last < self._free[pitch]:
                    continue
                if self._onset is not None:  # which begins the note, where one is coming
                    coming = known[self._onset, self._last :, pitch].max()
                    if coming >= self.settings.onset_threshold:
                        continue
                chance = float(known[self._frame, self._last, pitch])
                events += self._strike(first + self._last, 0.0, pitch, known, chance)
        return events

    def _confirmed(self, known: NDArray[np.float32], at: int, pitch: int) -> bool:
        """Whether the frame probability confirms an onset in column ``at``."""
        frame = known[self._frame, at : at + self.settings.onset_radius_frames + 1, pitch]
        return bool(frame.max() >= self.settings.frame_on_threshold)

    def _strike(
        self, frame: int, shift: float, pitch: int, known: NDArray[np.float32], chance: float
    ) -> list[NoteEvent]:
        """The note_on, and before it the note_off of a note that is struck again.

        chance: the probability that begins the note.
        """
        column = frame - self._pushed + self.columns  # one window more has been pushed
        time_frames = max(float(self._free[pitch]), frame + shift)
        events = []
        if pitch in self._sounding:
            # Not so far back that the end would come later than other ends do.
            latest = self.decided - 1 - self.last_age - int(self.off_delay_frames)
            earliest = max(int(self._free[pitch]), latest)
            fell = self._fell(known, column, frame, pitch, earliest)
            events.append(self._end(pitch, fell, time_frames if fell == frame else fell))
        return [*events, self._begin(known, column, frame, pitch, time_frames, chance)]

    def _end_those(self, first: int, known: NDArray[np.float32], given: int) -> list[NoteEvent]:
        events: list[NoteEvent] = []
        if not self._sounding:
            return events
        pitches = np.array(sorted(self._sounding))
        free = self._free[pitches] - first
        # Frames that only now turn out to be low are too old to end a note.
        oldest = self._last - self.settings.release_frames + 1
        low = self._low(known[:, oldest:, pitches]).T
        low[:, self.columns - min(END_AGE, self.last_age) - oldest :] = False
        starts = np.arange(oldest, oldest + self.last_age + 1)  # columns where a release begins
        released = (starts >= free[:, None]) & (starts < given)
        for shift in range(self.settings.release_frames):
            released &= low[:, shift : shift + len(starts)]
        faded = self._offsets(known)[pitches] & (self._last >= free)
        fell = released.any(axis=1)
        columns = np.where(fell, oldest + released.argmax(axis=1), self._last)
        for i in (fell | faded).nonzero()[0].tolist():
            frame = first + int(columns[i])
            events.append(self._end(int(pitches[i]), frame, frame))
        return events

    def _offsets(self, known: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Where the frame with full look-ahead is a peak of the offset head that ends a note:
        [128]."""
        threshold = self.settings.offset_threshold
        if self._offset is None or threshold is None:
            return np.zeros(PITCHES, np.bool_)
        radius = self.settings.onset_radius_frames
        near = known[self._offset, self._last - radius : self._last + radius + 1]
        after = min(self._last + radius, self.columns - 1)
        gone = known[self._frame, after] < self.settings.frame_on_threshold
        return onsets.peaks(near, radius, threshold)[radius] & gone

    def _hold(self, event: NoteEvent) -> None:
        super()._hold(event)
        self._free[event.pitch] = event.frame + self._least_frames

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        self._free[pitch] = max(int(self._free[pitch]), frame)
        return super()._end(pitch, frame, time_frames)

    def _count_high(self, first: int, known: NDArray[np.float32]) -> None:
        if self._start_threshold is not None and first + self._last >= 0:
            high = known[self._frame, self._last] >= self._start_threshold
            # No further than it matters, so that ``history_frames`` windows tell it whole.
            self._high = np.where(high, np.minimum(self._high + 1, self._start_frames), 0)
