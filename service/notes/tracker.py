"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

Beginnings are known sooner than ends. When frame n has arrived, a pitch

* ends at frame n - ``off_delay_frames`` if its frame probability stays below a lower threshold
  for several frames from there on;
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

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.events import NoteEvent
from service.notes.tracker_settings import MAX_VELOCITY, TrackerSettings

_SILENT = -1  # onset frame of a pitch that does not sound


@dataclass(slots=True)
class _Said:
    """What the probabilities imply at each of n new frames, regardless of which notes sound.

    All [n, 128]. ``release`` refers to the frame ``off_delay_frames`` earlier, the others to the
    one ``on_delay_frames`` earlier.
    """

    peak: NDArray[np.bool_]
    start: NDArray[np.bool_]
    offset: NDArray[np.bool_]
    release: NDArray[np.bool_]


class NoteTracker:
    """Notes of one stream. Pure: no clock, and no input except the probabilities, in order."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
    ) -> None:
        """Args:
        frame_seconds: seconds from frame to frame.
        heads: names of the rows of the probabilities; "frame" is required, "onset", "velocity" and
            "offset" are used if present.
        """
        self.settings = settings
        self._frame_seconds = frame_seconds
        self._n_heads = len(heads)
        rows = {head: row for row, head in enumerate(heads)}
        self._frame = rows["frame"]
        self._onset = rows.get("onset")
        self._velocity = rows.get("velocity")
        self._offset = rows.get("offset") if settings.offset_threshold is not None else None
        self._on_delay = settings.on_delay_frames
        self._off_delay = settings.off_delay_frames
        if self._onset is None:  # notes then begin by their frames, as early as possible
            self._start_threshold: float | None = settings.frame_on_threshold
            self._start_frames = self._on_delay + 1
        else:
            self._start_threshold = settings.frame_start_threshold
            self._start_frames = max(settings.frame_start_frames, self._on_delay + 1)
        # Frames of history; silence precedes the stream.
        self._past = max(2 * self._on_delay, self._off_delay, self._start_frames - 1)
        self._recent = np.zeros((self._n_heads, self._past, PITCHES), np.float32)
        self._pushed = 0
        self._onset_frame = np.full(PITCHES, _SILENT)
        self._sounding: dict[int, NoteEvent] = {}
        self._notes = 0
        self._resumed = 0  # earlier frames were decided elsewhere

    @property
    def history_frames(self) -> int:
        """Number of latest frames that affect the next decisions."""
        return self._past

    @property
    def on_delay_frames(self) -> float:
        """Maximum frames from the time of a note_on until it is known.

        Half a frame more than the wait itself: an onset may lie that far before its frame.
        """
        return self._on_delay + 0.5 - min(0.0, self.settings.onset_correction_frames)

    @property
    def off_delay_frames(self) -> float:
        """Maximum frames from the time of a note_off until it is known."""
        return max(self.on_delay_frames, self._off_delay)  # a re-strike ends a note at its onset

    @property
    def pushed(self) -> int:
        """Frames pushed so far."""
        return self._pushed

    @property
    def sounding(self) -> int:
        """Number of notes that have begun but not ended."""
        return len(self._sounding)

    def resume(
        self,
        first_frame: int,
        frames: int,
        notes: int,
        sounding: Iterable[NoteEvent],
    ) -> None:
        """Continue where another tracker of the same stream stopped after ``frames`` frames.

        Nothing is decided until that frame is reached. If the ``history_frames`` frames before it
        are pushed first, or all from frame 0, the state is then identical.

        Args:
            first_frame: the frame that will be pushed first, at most ``frames``.
            notes: notes that had begun.
            sounding: the note_on of each note that had not ended, one per pitch.
        """
        self._pushed = first_frame
        self._resumed = frames
        self._notes = notes
        self._sounding = {event.pitch: event for event in sounding}
        for event in self._sounding.values():
            self._onset_frame[event.pitch] = event.frame

    @property
    def decided(self) -> int:
        """Number of frames whose beginnings are decided."""
        return max(self._pushed, self._resumed) - self._on_delay

    def push(self, first_frame: int, probabilities: NDArray[np.float32]) -> list[NoteEvent]:
        """Like ``push_known``, without the frames."""
        return [event for _, event in self.push_known(first_frame, probabilities)]

    def push_known(
        self, first_frame: int, probabilities: NDArray[np.float32]
    ) -> list[tuple[int, NoteEvent]]:
        """Process the next frames; return the events now known, in the order in which they became
        known, each with the frame that made it known.

        Args:
            first_frame: index of the first of them; must be ``pushed``.
            probabilities: shape [heads, n, 128].

        Raises:
            ValueError: frames are missing or repeated, or the shape is wrong.
        """
        if first_frame != self._pushed:
            raise ValueError(f"expected frame {self._pushed} next, got {first_frame}")
        if probabilities.ndim != 3 or probabilities.shape[::2] != (self._n_heads, PITCHES):
            raise ValueError(
                f"expected probabilities of shape ({self._n_heads}, n, {PITCHES}), "
                f"got {probabilities.shape}"
            )
        count = probabilities.shape[1]
        if count == 0:
            return []
        known = as_probabilities(probabilities)
        self._recent = np.concatenate([self._recent[:, -self._past :], known], axis=1)
        if self._pushed < self._resumed:  # these frames only fill the history
            self._pushed += count
            return []
        said = self._read(count)
        begins = np.any(said.peak | said.start, axis=1).tolist()
        ends = said.release | said.offset
        events: list[tuple[int, NoteEvent]] = []
        for i in range(count):  # most frames neither begin nor end a note
            if begins[i] or (self._sounding and ends[i, list(self._sounding)].any()):
                events += [(self._pushed, event) for event in self._step(i, said)]
            self._pushed += 1
        return events

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """Like ``finish_known``, without the frames."""
        return [event for _, event in self.finish_known(end_frame)]

    def finish_known(self, end_frame: int) -> list[tuple[int, NoteEvent]]:
        """End the stream before ``end_frame``, which must be ``pushed``: decide the last frames as
        if silence followed, and end all notes there."""
        if end_frame != self._pushed:
            raise ValueError(f"{self._pushed} frames were pushed, the end cannot be at {end_frame}")
        silence = np.zeros((self._n_heads, self._off_delay, PITCHES), np.float32)
        last = self.push_known(end_frame, silence)
        return [*last, *((self._pushed, event) for event in self._end_all(end_frame))]

    def close(self) -> list[NoteEvent]:
        """End all notes at the first frame whose beginnings are undecided."""
        return self._end_all(self.decided)

    def _end_all(self, frame: int) -> list[NoteEvent]:
        return [self._end(pitch, frame, frame) for pitch in sorted(self._sounding)]

    def _read(self, count: int) -> _Said:
        """Evaluate the settings' conditions on all new frames at once."""
        settings, delay, radius = self.settings, self._on_delay, self.settings.onset_radius_frames
        frame = self._recent[self._frame]

        def over(
            reduce: np.ufunc, values: NDArray[np.float32], first: int, last: int
        ) -> NDArray[np.float32]:
            """Row i: the frames from ``first`` to ``last``, counted from the i-th new one."""
            out = values[self._past + first : self._past + first + count]
            for shift in range(self._past + first + 1, self._past + last + 1):
                out = reduce(out, values[shift : shift + count])
            return out

        def peaks(row: int, threshold: float) -> NDArray[np.bool_]:
            values = self._recent[row]
            here = over(np.maximum, values, -delay, -delay)
            # The first of equal values is the peak, so a plateau has exactly one.
            return np.asarray(
                (here >= threshold)
                & (here > over(np.maximum, values, -delay - radius, -delay - 1))
                & (here >= over(np.maximum, values, -delay + 1, -delay + radius))
            )

        released = over(
            np.maximum, frame, -self._off_delay, settings.release_frames - 1 - self._off_delay
        )
        never = np.zeros((count, PITCHES), np.bool_)
        said = _Said(never, never, never, release=released < settings.frame_off_threshold)
        if self._start_threshold is not None:
            run = over(np.minimum, frame, 1 - self._start_frames, 0)
            said.start = run >= self._start_threshold
        if self._onset is not None:
            confirmed = over(np.maximum, frame, -delay, 0) >= settings.frame_on_threshold
            said.peak = peaks(self._onset, settings.onset_threshold) & confirmed
            # If an onset is about to peak, let it begin the note.
            coming = over(np.maximum, self._recent[self._onset], -delay, 0)
            said.start = said.start & (coming < settings.onset_threshold)
        if self._offset is not None and settings.offset_threshold is not None:
            gone = over(np.maximum, frame, 0, 0) < settings.frame_on_threshold
            said.offset = peaks(self._offset, settings.offset_threshold) & gone
        return said

    def _step(self, i: int, said: _Said) -> list[NoteEvent]:
        """The events that the i-th new frame, ``self._pushed``, makes known."""
        past, frame = self._pushed - self._off_delay, self._pushed - self._on_delay
        least = self.settings.min_note_frames
        struck = self._struck(i, said)
        released = said.release[i] & self._sounds & (past - self._onset_frame >= least)
        if past == frame:
            released &= ~struck  # a re-strike ends its note below
        events = [self._end(pitch, past, past) for pitch in np.flatnonzero(released).tolist()]
        if past < frame:
            struck = self._struck(i, said)  # given what still sounds
        faded = said.offset[i] & self._sounds & (frame - self._onset_frame >= least) & ~struck
        events += [self._end(pitch, frame, frame) for pitch in np.flatnonzero(faded).tolist()]
        may_begin = ~self._sounds | (frame - self._onset_frame >= least)
        begins: dict[int, float] = {}  # pitch -> time in frames
        for pitch in np.flatnonzero(struck & may_begin).tolist():
            begins[pitch] = self._onset_time(i, pitch)
            if pitch in self._sounding:
                fell = self._fell(i, pitch)
                events.append(self._end(pitch, fell, begins[pitch] if fell == frame else fell))
        by_frames = said.start[i] & ~said.peak[i] & ~self._sounds
        at = max(0.0, frame + self.settings.onset_correction_frames)
        begins |= dict.fromkeys(np.flatnonzero(by_frames).tolist(), at)
        for pitch, time_frames in sorted(begins.items(), key=lambda b: (self._seconds(b[1]), b[0])):
            head = self._frame if by_frames[pitch] else self._onset
            events.append(self._begin(i, pitch, time_frames, head))
        events.sort(key=lambda event: (event.time_s, event.kind == "note_on", event.pitch))
        return events

    @property
    def _sounds(self) -> NDArray[np.bool_]:
        return self._onset_frame != _SILENT

    def _struck(self, i: int, said: _Said) -> NDArray[np.bool_]:
        """Peaks that begin notes, [128]; a sounding pitch needs a higher one."""
        again = self.settings.restrike_threshold
        if again is None or self._onset is None:
            return said.peak[i]
        onset = self._recent[self._onset, self._past + i - self._on_delay]
        return np.asarray(said.peak[i] & (~self._sounds | (onset >= again)))

    def _fell(self, i: int, pitch: int) -> int:
        """Where a note ends that is struck again ``on_delay_frames`` before the i-th new frame: the
        first of the consecutive frames below the off threshold that lead up to the strike.

        Bounded, so that this end is known no later after its time than other ends.
        """
        frame = self._pushed - self._on_delay
        first = max(
            self._pushed - self._off_delay,
            int(self._onset_frame[pitch]) + self.settings.min_note_frames,
        )
        at = self._past + i - self._pushed  # index of frame 0
        while frame > first and (
            self._recent[self._frame, at + frame - 1, pitch] < self.settings.frame_off_threshold
        ):
            frame -= 1
        return frame

    def _onset_time(self, i: int, pitch: int) -> float:
        """The interpolated time of a peak, in frames."""
        at = self._past + i - self._on_delay
        shift = onset_shift(self._recent[self._onset, at - 1 : at + 2, pitch])
        shift += self.settings.onset_correction_frames
        return max(0.0, self._pushed - self._on_delay + shift)

    def _begin(self, i: int, pitch: int, time_frames: float, head: int | None) -> NoteEvent:
        """head: the row of the probabilities that begins the note."""
        at = self._past + i - self._on_delay
        event = NoteEvent(
            kind="note_on",
            note_id=self._notes,
            pitch=pitch,
            velocity=self._velocity_at(at, pitch),
            confidence=round(min(1.0, float(self._recent[head, at, pitch])), 4),
            frame=self._pushed - self._on_delay,
            time_s=self._seconds(time_frames),
        )
        self._notes += 1
        self._sounding[pitch] = event
        self._onset_frame[pitch] = event.frame
        return event

    def _velocity_at(self, at: int, pitch: int) -> int:
        if self._velocity is None:
            return self.settings.default_velocity
        if self._onset is not None:
            # The head is trained around onsets: read it where an onset is likeliest.
            near = slice(at - self.settings.onset_radius_frames, at + self._on_delay + 1)
            at = near.start + int(np.argmax(self._recent[self._onset, near, pitch]))
        return velocity_of(float(self._recent[self._velocity, at, pitch]))

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        on = self._sounding.pop(pitch)
        self._onset_frame[pitch] = _SILENT
        return dataclasses.replace(
            on, kind="note_off", frame=frame, time_s=self._seconds(time_frames)
        )

    def _seconds(self, frames: float) -> float:
        return round(frames * self._frame_seconds, 6)


def as_probabilities(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """From 0 to 1, and 0 for NaN; several times as fast as ``nan_to_num``."""
    return np.fmin(np.fmax(values, 0), 1, dtype=np.float32)


def onset_shift(about: NDArray[np.float32]) -> float:
    """Frames from a peak to the onset, -0.5 to 0.5: about has the onset probabilities of the frame
    before, of the peak and, where it is known, of the frame after.

    The onset head is trained towards a triangle, so the true top follows from the three exactly as
    its two flanks meet.
    """
    if len(about) < 3:
        return 0.0
    before, peak, after = about.tolist()
    lowest = min(before, after)
    shift = 0.5 * (after - before) / (peak - lowest) if peak > lowest else 0.0
    return min(0.5, max(-0.5, shift))


def velocity_of(loudness: float) -> int:
    """MIDI velocity, 1 to 127, for the value of the velocity head."""
    return max(1, min(MAX_VELOCITY, math.floor(loudness * MAX_VELOCITY + 0.5)))
