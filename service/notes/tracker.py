"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

Beginnings are known no later than ends. When frame n has arrived, a pitch

* ends at frame n - ``off_delay_frames`` if its frame probability stays below a threshold, lower
  where the sustain pedal is down, for several frames from there on;
* ends at frame n - ``on_delay_frames`` if the offset probability (in models with that head) peaks
  there and the frame probability has dropped since;
* begins at frame n - ``on_delay_frames`` if the onset probability peaks above its threshold there
  and the frame probability confirms it; a silent pitch also begins if its frame probability has
  been high for several frames without an onset (the only way in models without an onset head);
* is struck again if it already sounds and such a peak occurs: the old note ends where its frame
  probability fell just before, or else where the new one begins.

Events are returned in the order in which they become known: a note may end before beginnings of
other pitches that were returned earlier. Events of one pitch are in time order.

Live events cannot be retracted, so a note that turns out to be short gets the minimum length.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes import onsets
from service.notes.events import NoteEvent
from service.notes.tracker_settings import TrackerSettings
from service.notes.tracking import Known, Tracker, onset_shift

_SILENT = -1  # onset frame of a pitch that does not sound


@dataclass(slots=True)
class _FrameEvidence:
    """What the probabilities imply at each of n new frames, regardless of which notes sound.

    All [n, 128]. ``release`` refers to the frame ``off_delay_frames`` earlier, the others to the
    one ``on_delay_frames`` earlier. ``onset``: the probability that a note begins, at peaks.
    """

    onset: NDArray[np.float32]
    peak: NDArray[np.bool_]
    start: NDArray[np.bool_]
    offset: NDArray[np.bool_]
    release: NDArray[np.bool_]


class NoteTracker(Tracker):
    """Notes of a stream whose frames are each seen once, with their full look-ahead."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
    ) -> None:
        super().__init__(settings, frame_seconds, heads)
        self._on_delay = settings.on_delay_frames
        self._off_delay = settings.off_delay_frames
        self._start_frames = max(self._start_frames, self._on_delay + 1)
        # Frames of history; silence precedes the stream.
        self._past = max(2 * self._on_delay, self._off_delay, self._start_frames - 1)
        if self._classifier:
            self._past = max(self._past, onsets.HISTORY + self._on_delay)
        self._recent = np.zeros((self._n_heads, self._past, PITCHES), np.float32)
        self._onset_frame = np.full(PITCHES, _SILENT)
        self.history_frames = self._past
        # Half a frame more than the wait itself: an onset may lie that far before its frame.
        self.on_delay_frames = self._on_delay + 0.5 - min(0.0, settings.onset_correction_frames)
        # A re-strike ends a note at its onset.
        self.off_delay_frames = max(self.on_delay_frames, self._off_delay)

    @property
    def decided(self) -> int:
        return max(self._pushed, self._resumed) - self._on_delay

    def push(self, probabilities: NDArray[np.float32]) -> Known:
        count = probabilities.shape[1]
        if count == 0:
            return []
        self._recent = np.concatenate([self._recent[:, -self._past :], probabilities], axis=1)
        if self._pushed < self._resumed:  # these frames only fill the history
            self._pushed += count
            return []
        evidence = self._read(count)
        begins = np.any(evidence.peak | evidence.start, axis=1).tolist()
        ends = evidence.release | evidence.offset
        events: Known = []
        for i in range(count):  # most frames neither begin nor end a note
            if begins[i] or (self._sounding and ends[i, list(self._sounding)].any()):
                events += [(self._pushed, event) for event in self._step(i, evidence)]
            self._pushed += 1
        return events

    def finish(self, end_frame: int) -> Known:
        silence = np.zeros((self._n_heads, self._off_delay, PITCHES), np.float32)
        last = self.push(silence)
        return [*last, *((self._pushed, event) for event in self._end_all(end_frame))]

    def _read(self, count: int) -> _FrameEvidence:
        """Evaluate the settings' conditions on all new frames at once."""
        settings, delay, radius = self.settings, self._on_delay, self.settings.onset_radius_frames
        frame = self._recent[self._frame]

        def over(reduce: np.ufunc, values: NDArray[Any], first: int, last: int) -> NDArray[Any]:
            """Row i: the frames from ``first`` to ``last``, counted from the i-th new one."""
            out = values[self._past + first : self._past + first + count]
            for shift in range(self._past + first + 1, self._past + last + 1):
                out = reduce(out, values[shift : shift + count])
            return out

        def peaks(row: int, threshold: float) -> NDArray[np.bool_]:
            first = self._past - delay - radius
            values = self._recent[row, first : first + count + 2 * radius]
            return onsets.peaks(values, radius, threshold)[radius : radius + count]

        low = self._low(self._recent)
        last = settings.release_frames - 1 - self._off_delay
        released = over(np.logical_and, low, -self._off_delay, last)
        never = np.zeros((count, PITCHES), np.bool_)
        silent = np.zeros((count, PITCHES), np.float32)
        evidence = _FrameEvidence(silent, never, never, never, release=released)
        if self._start_threshold is not None:
            run = over(np.minimum, frame, 1 - self._start_frames, 0)
            evidence.start = run >= self._start_threshold
        if self._onset is not None:
            confirmed = over(np.maximum, frame, -delay, 0) >= settings.frame_on_threshold
            found = peaks(self._onset, self._candidate) & confirmed
            first = self._past - delay
            *at, chances = self._judged(self._recent, found, first, self._past + count)
            evidence.onset[*at] = chances
            evidence.peak = found & (evidence.onset >= settings.onset_threshold)
            # If an onset is about to peak, let it begin the note.
            coming = over(np.maximum, self._recent[self._onset], -delay, 0)
            evidence.start = evidence.start & (coming < settings.onset_threshold)
        if self._offset is not None and settings.offset_threshold is not None:
            gone = over(np.maximum, frame, 0, 0) < settings.frame_on_threshold
            evidence.offset = peaks(self._offset, settings.offset_threshold) & gone
        return evidence

    def _step(self, i: int, evidence: _FrameEvidence) -> list[NoteEvent]:
        """The events that the i-th new frame, ``self._pushed``, makes known."""
        past, frame = self._pushed - self._off_delay, self._pushed - self._on_delay
        at = self._past + i - self._on_delay  # the column of ``frame``
        least = self.settings.min_note_frames
        struck = self._struck(i, evidence)
        released = evidence.release[i] & self._sounds & (past - self._onset_frame >= least)
        if past == frame:
            released &= ~struck  # a re-strike ends its note below
        events = [self._end(pitch, past, past) for pitch in np.flatnonzero(released).tolist()]
        if past < frame:
            struck = self._struck(i, evidence)  # given what still sounds
        faded = evidence.offset[i] & self._sounds & (frame - self._onset_frame >= least) & ~struck
        events += [self._end(pitch, frame, frame) for pitch in np.flatnonzero(faded).tolist()]
        may_begin = ~self._sounds | (frame - self._onset_frame >= least)
        begins: dict[int, float] = {}  # pitch -> time in frames
        for pitch in np.flatnonzero(struck & may_begin).tolist():
            shift = onset_shift(self._recent[self._onset, at - 1 : at + 2, pitch])
            shift += self.settings.onset_correction_frames
            begins[pitch] = max(0.0, frame + shift)
            if pitch in self._sounding:
                # Bounded, so that this end is known no later after its time than other ends.
                earliest = max(past, int(self._onset_frame[pitch]) + least)
                fell = self._fell(self._recent, at, frame, pitch, earliest)
                events.append(self._end(pitch, fell, begins[pitch] if fell == frame else fell))
        by_frames = evidence.start[i] & ~evidence.peak[i] & ~self._sounds
        start = max(0.0, frame + self.settings.onset_correction_frames)
        begins |= dict.fromkeys(np.flatnonzero(by_frames).tolist(), start)
        for pitch, time_frames in sorted(begins.items(), key=lambda b: (self._seconds(b[1]), b[0])):
            by_frame = by_frames[pitch]
            sure = self._recent[self._frame, at, pitch] if by_frame else evidence.onset[i, pitch]
            events.append(self._begin(self._recent, at, frame, pitch, time_frames, float(sure)))
        events.sort(key=lambda event: (event.time_s, event.kind == "note_on", event.pitch))
        return events

    @property
    def _sounds(self) -> NDArray[np.bool_]:
        return self._onset_frame != _SILENT

    def _struck(self, i: int, evidence: _FrameEvidence) -> NDArray[np.bool_]:
        """Peaks that begin notes, [128]; a sounding pitch needs a higher one."""
        again = self.settings.restrike_threshold
        if again is None:
            return evidence.peak[i]
        return np.asarray(evidence.peak[i] & (~self._sounds | (evidence.onset[i] >= again)))

    def _hold(self, event: NoteEvent) -> None:
        super()._hold(event)
        self._onset_frame[event.pitch] = event.frame

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        self._onset_frame[pitch] = _SILENT
        return super()._end(pitch, frame, time_frames)
