"""Tracks notes in anytime mode, which sends a note once its confidence passes a threshold.

Successive windows predict the same frames again, with more future audio each time. The tracker
decodes the newest frame n of each window and the ``columns`` - 1 frames before it. A window with
several new frames is decoded as if a separate window had ended at each new frame. Monophonic music
and singers are decoded like polyphonic music, because the best path would need later frames. For
one pitch, let

    o_n[f], y_n[f]    the onset and frame probabilities that window n gives frame f
    p_n[f]            the probability that a note starts at f, a peak of o_n: o_n[f], or less at
                      overtones (``Tracker._onset_probability``)
    A                 the age n - f at which a frame has its full look-ahead (``last_age``)
    T(a)              the onset threshold at the age a, higher for younger frames (``early_odds``)
    r, m              ONSET_RADIUS, ``min_note_frames``
    free              the first frame at which the pitch may start again
                      (``earliest_onset_frames``): max(m, 2 r + 1) frames after
                      its last onset, or the frame of its last offset if that is later

When window n arrives, the pitch

* starts at frame f, n - A <= f <= n, if o_n peaks there (r frames either way, up to n) and

      f >= free,    p_n[f] >= T(n - f),    max of y_n[f ... min(f + r, n)] >= frame_on_threshold;

* starts again under the same conditions if it already sounds. The old note ends where the sum of
  the evidence that it sounds was greatest (``service.notes.base_tracker``), or where the new note
  starts if that is earlier;
* ends where this sum was greatest. Frame f contributes to it with the probabilities of the window
  in which the frame has the age min(OFFSET_AGE, A). The probability of younger frames is often
  too low.

A clear onset therefore starts its note at once. An uncertain onset starts its note after the full
look-ahead at the latest. ``training.shipping.anytime_thresholds`` chooses T(a): the lowest
threshold above which at most 3 % of the peaks of age a are new false notes. A false note is new if
the note would not have started with the full look-ahead.

The peak of one onset moves by up to r frames from window to window. ``free`` prevents the moved
peak from starting a second note. Events are returned when they are decided, and never retracted.
"""

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.base_tracker import WAIT, Tracker
from service.notes.events import NoteEvent
from service.notes.frames import add_log_odds
from service.notes.tracker_settings import ONSET_RADIUS, TrackerSettings
from service.protocol.checkpoint import Checkpoint

OFFSET_AGE = 4  # age in frames at which a frame is evidence for or against an offset
EARLY_ODDS = tuple(2.5 * 2 ** (-age / 2) for age in range(32))  # default of ``early_odds``


class AnytimeTracker(Tracker):
    """Tracker of a stream whose frames appear again in successive windows. Onsets depend on the
    newest window, ``free`` and the sounding notes. Offsets depend on ``history_frames`` windows."""

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...], last_age: int
    ) -> None:
        super().__init__(settings, frame_seconds, heads, offset_age=min(OFFSET_AGE, last_age))
        self.last_age = last_age
        self.columns = 1 + last_age + ONSET_RADIUS
        odds = (settings.early_odds or EARLY_ODDS)[:last_age]
        ages = reversed(range(self.columns))  # oldest first, like the columns of a window
        self._extra_log_odds = [odds[age] if age < len(odds) else 0.0 for age in ages]
        # A note may start so late that its first frames are too old to count as evidence.
        self._held_frames = max(settings.min_note_frames, last_age - self._offset_age)
        self._min_onset_distance = max(settings.min_note_frames, 2 * ONSET_RADIUS + 1)  # frames
        self._earliest = np.zeros(PITCHES, np.int64)
        self._windows = np.zeros((self._n_heads, 0, PITCHES), np.float32)
        self._next = 0  # first column of the next window
        self._shown = 0  # number of columns in the block
        self.history_frames = WAIT + self._offset_age
        # The time of an onset may precede its frame by half a frame and by a negative correction.
        self.on_delay_frames = 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, WAIT + self._offset_age - last_age)

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        for pitch, frame in checkpoint.free.items():
            self._earliest[pitch] = frame
        super().resume(first_frame, checkpoint)

    @property
    def earliest_onset_frames(self) -> dict[int, int]:
        oldest = self._pushed - self.last_age
        pitches = np.flatnonzero(self._earliest >= max(1, oldest)).tolist()
        return {p: int(self._earliest[p]) for p in pitches if p not in self._sounding}

    def read(self, block: NDArray[np.float32], new: int, offset_cents: float = 0.0) -> None:
        """Accept a block, [heads, columns - 1 + new, 128], or fewer frames at the end of a
        stream."""
        self._shown = block.shape[1]
        before = max(0, self.columns - 1 - self._pushed)
        missing = self.columns - 1 + new - self._shown
        if before or missing:
            block = np.pad(block[:, before:], ((0, 0), (before, missing), (0, 0)))
        self._windows, self._next = block, 0

    def step(self) -> list[NoteEvent]:
        last = self._next + self.columns - 1
        self._latest = self._windows[:, self._next : last + 1]
        self._next += 1
        self._oldest = self._pushed - self.columns + 1
        events = self._begin_all() if self._pushed >= self._resumed else []
        if last - self._offset_age < self._shown:  # the frame is not after the stream's end
            events += self._find_offsets()
        self._pushed += 1
        return events

    def onset_peaks(self, window: NDArray[np.float32]) -> list[tuple[int, int, float]]:
        """Return the onset peaks of a window, regardless of their age and of earlier notes: number
        of frames after n - A, pitch, and p. A peak reaches the lowest onset threshold. Training
        calls this method instead of ``step`` to choose thresholds."""
        missing = self.columns - window.shape[1]
        self._latest, self._oldest = np.pad(window, ((0, 0), (0, missing), (0, 0))), 0
        return [
            (frame - ONSET_RADIUS, pitch, self._onset_probability(frame, pitch))
            for frame, pitch in self._peaks()
        ]

    def _peaks(self) -> list[tuple[int, int]]:
        """Return frame (n - A to n) and pitch of the onset peaks that the frame head confirms."""
        is_peak = self._onset_peaks()
        is_peak[:ONSET_RADIUS] = False  # these frames are older than n - A
        return [(self._oldest + column, pitch) for column, pitch in np.argwhere(is_peak).tolist()]

    def _begin_all(self) -> list[NoteEvent]:
        events: list[NoteEvent] = []
        for frame, pitch in self._peaks():
            if frame < self._earliest[pitch]:
                continue
            probability = self._onset_probability(frame, pitch)
            extra_log_odds = self._extra_log_odds[frame - self._oldest]
            if probability < add_log_odds(self._onset_threshold, extra_log_odds):
                continue
            time_frames = max(float(self._earliest[pitch]), self._onset_time(frame, pitch))
            if pitch in self._sounding:
                events.append(self._end_at_best(pitch, frame, time_frames))
            events.append(self._begin(frame, pitch, time_frames, probability))
        return events

    def _add_sounding(self, event: NoteEvent) -> None:
        super()._add_sounding(event)
        self._earliest[event.pitch] = event.frame + self._min_onset_distance

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        self._earliest[pitch] = max(int(self._earliest[pitch]), frame)
        return super()._end(pitch, frame, time_frames)
