"""Frame probabilities to notes: strictly causal, the same for a live stream and a file.

A frame g is decided when the frames up to g + ``delay_frames`` are known; all events of a decision
carry frame g, so they leave in the order of their time. At frame g a pitch

* begins where the onset probability peaks above its threshold and the frame probability confirms
  it; a silent pitch begins as well where its frame probability has been high for several frames
  though no onset was seen (the only way for models without an onset head);
* is struck again where it sounds already and such a peak comes: the old note ends, a new one
  begins;
* ends where its frame probability stays below a lower threshold for several frames.

What was said live cannot be taken back, so a note that turns out short is given the least length.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.events import NoteEvent

_SILENT = -1  # in place of the onset frame of a pitch that does not sound
_MAX_VELOCITY = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """Thresholds are probabilities, lengths are frames (11.6 ms at 11,025 Hz).

    Attributes:
        onset_threshold: least onset probability of a peak that begins a note.
        onset_radius_frames: a peak is the highest onset probability within so many frames.
        frame_on_threshold: the frame probability that must be reached within ``delay_frames``
            of an onset; for models without onset head, the one that begins a note.
        frame_off_threshold: a note ends when its frame probability stays below this...
        release_frames: ... for so many frames.
        frame_start_threshold: a note without an onset begins when its frame probability is at
            least this...
        frame_start_frames: ... for so many frames. A ``frame_start_threshold`` of None: never.
        min_note_frames: least length of a note, and least distance of two onsets of a pitch.
        default_velocity: MIDI velocity where the model has no velocity head.

    Raises:
        ValueError: a threshold outside of 0 to 1, a length below 1, or no hysteresis.
    """

    onset_threshold: float = 0.5
    onset_radius_frames: int = 2
    frame_on_threshold: float = 0.4
    frame_off_threshold: float = 0.25
    release_frames: int = 3
    frame_start_threshold: float | None = 0.7
    frame_start_frames: int = 6
    min_note_frames: int = 4
    default_velocity: int = 80

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_threshold"):
                optional = field.name == "frame_start_threshold" and value is None
                if not optional and not 0 <= value <= 1:
                    raise ValueError(f"{field.name} must be from 0 to 1, not {value!r}")
            elif not isinstance(value, int) or value < 1:
                raise ValueError(f"{field.name} must be a whole number from 1, not {value!r}")
        if self.min_note_frames < 2:  # two onsets between frames could meet
            raise ValueError(f"min_note_frames must be at least 2, not {self.min_note_frames}")
        if self.frame_off_threshold > self.frame_on_threshold:
            raise ValueError(
                f"frame_off_threshold {self.frame_off_threshold} is above "
                f"frame_on_threshold {self.frame_on_threshold}"
            )
        start = self.frame_start_threshold
        if start is not None and start < self.frame_off_threshold:
            raise ValueError(
                f"frame_start_threshold {start} is below "
                f"frame_off_threshold {self.frame_off_threshold}"
            )
        if self.default_velocity > _MAX_VELOCITY:
            raise ValueError(f"default_velocity must be at most 127, not {self.default_velocity}")

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Self:
        """The settings that a model's card recommends under "tracker"; defaults for the rest.

        Raises ValueError for unknown names.
        """
        values = dict(card.get("tracker") or {})
        unknown = sorted(values.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"the model's card names unknown tracker settings: {unknown}")
        return cls(**values)

    @property
    def delay_frames(self) -> int:
        """Frames after a frame that must be known before it is decided."""
        return max(self.onset_radius_frames, self.release_frames - 1)


@dataclass(slots=True)
class _Decisions:
    """What the probabilities of some frames say, before what sounds is considered: [n, 128]."""

    peak: NDArray[np.bool_]
    start: NDArray[np.bool_]
    release: NDArray[np.bool_]


class NoteTracker:
    """Notes of one stream. Pure: no clock, no input but the probabilities, in order."""

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...] = ("frame", "onset", "velocity"),
    ) -> None:
        """Args:
        frame_seconds: time from frame to frame.
        heads: names of the rows of the probabilities, "frame" first.
        """
        self.settings = settings
        self._frame_seconds = frame_seconds
        self._n_heads = len(heads)
        self._frame = heads.index("frame")
        self._onset = heads.index("onset") if "onset" in heads else None
        self._velocity = heads.index("velocity") if "velocity" in heads else None
        self._delay = settings.delay_frames
        if self._onset is None:  # then a note begins by its frames, and as soon as may be
            self._start_threshold: float | None = settings.frame_on_threshold
            start_frames = self._delay + 1
        else:
            self._start_threshold = settings.frame_start_threshold
            start_frames = max(settings.frame_start_frames, self._delay + 1)
        self._start_back = start_frames - 1 - self._delay
        self._back = max(settings.onset_radius_frames, self._start_back)
        # Frames next - back ... pushed; before the stream there was silence.
        self._recent = np.zeros((self._n_heads, self._back, PITCHES), np.float32)
        self._next = 0  # the frame to be decided next
        self._onset_frame = np.full(PITCHES, _SILENT)
        self._sounding: dict[int, NoteEvent] = {}
        self._notes = 0

    @property
    def delay_frames(self) -> float:
        """Frames from the time of an event until it is known, at most.

        Half a frame more than the frames waited for: an onset may lie that far before its frame.
        """
        return self._delay + 0.5

    @property
    def pushed(self) -> int:
        """Frames pushed so far."""
        return self._next + self._recent.shape[1] - self._back

    @property
    def sounding(self) -> int:
        """Notes that have begun and not ended."""
        return len(self._sounding)

    def push(self, first_frame: int, probabilities: NDArray[np.float32]) -> list[NoteEvent]:
        """Take the next frames; return the events that are certain now, in time order.

        Args:
            first_frame: index of the first of them; must be ``pushed``.
            probabilities: shape [heads, n, 128].

        Raises:
            ValueError: frames are missing or repeated, or the shape is another.
        """
        if first_frame != self.pushed:
            raise ValueError(f"expected frame {self.pushed} next, got {first_frame}")
        if probabilities.ndim != 3 or probabilities.shape[::2] != (self._n_heads, PITCHES):
            raise ValueError(
                f"expected probabilities of shape ({self._n_heads}, n, {PITCHES}), "
                f"got {probabilities.shape}"
            )
        known = np.nan_to_num(probabilities.astype(np.float32, copy=False), nan=0.0)
        self._recent = np.concatenate([self._recent, known], axis=1)
        count = self._recent.shape[1] - self._back - self._delay
        if count <= 0:
            return []
        events = self._decide(count)
        self._recent = self._recent[:, count:]
        self._next += count
        return events

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """The stream has ended before ``end_frame``, which must be ``pushed``: decide the last
        frames as if silence followed, and end all notes there."""
        if end_frame != self.pushed:
            raise ValueError(f"{self.pushed} frames were pushed, the end cannot be at {end_frame}")
        silence = np.zeros((self._n_heads, self._delay, PITCHES), np.float32)
        return [*self.push(end_frame, silence), *self._end_all(end_frame)]

    def close(self) -> list[NoteEvent]:
        """End all notes at the first frame that is not decided, and decide no more."""
        return self._end_all(self._next)

    def _end_all(self, frame: int) -> list[NoteEvent]:
        return [self._end(pitch, frame, frame) for pitch in sorted(self._sounding)]

    def _decide(self, count: int) -> list[NoteEvent]:
        """Events of the frames next ... next + count - 1."""
        said = self._read(count)
        begins = np.any(said.peak | said.start, axis=1).tolist()
        events: list[NoteEvent] = []
        for i in range(count):
            if begins[i] or self._sounding:  # most frames of most music: nothing else to look at
                events += self._decide_frame(i, said)
        return events

    def _read(self, count: int) -> _Decisions:
        """The settings' conditions on all frames to be decided at once."""
        settings, delay, radius = self.settings, self._delay, self.settings.onset_radius_frames
        frame = self._recent[self._frame]
        silent = np.zeros((count, PITCHES), np.bool_)

        def over(
            reduce: np.ufunc, values: NDArray[np.float32], first: int, last: int
        ) -> NDArray[np.float32]:
            """Row i: the frames from ``first`` to ``last``, counted from frame i, reduced."""
            start = self._back + first
            out = values[start : start + count]
            for shift in range(1, last - first + 1):
                out = reduce(out, values[start + shift : start + shift + count])
            return out

        release = over(np.maximum, frame, 0, settings.release_frames - 1)
        said = _Decisions(peak=silent, start=silent, release=release < settings.frame_off_threshold)
        if self._start_threshold is not None:
            run = over(np.minimum, frame, -self._start_back, delay)
            said.start = run >= self._start_threshold
        if self._onset is not None:
            onset = self._recent[self._onset]
            here = over(np.maximum, onset, 0, 0)
            # The first of equals is the peak, so exactly one frame of a plateau is.
            said.peak = (
                (here >= settings.onset_threshold)
                & (here > over(np.maximum, onset, -radius, -1))
                & (here >= over(np.maximum, onset, 1, radius))
                & (over(np.maximum, frame, 0, delay) >= settings.frame_on_threshold)
            )
            # Where an onset is coming, it begins the note, not its frames.
            said.start = said.start & (over(np.maximum, onset, 0, delay) < settings.onset_threshold)
        return said

    def _decide_frame(self, i: int, said: _Decisions) -> list[NoteEvent]:
        frame = self._next + i
        sounds = self._onset_frame != _SILENT
        may_end = sounds & (frame - self._onset_frame >= self.settings.min_note_frames)
        struck = said.peak[i] & (~sounds | may_end)
        ends = may_end & (said.release[i] | struck)
        events = []
        begins: dict[int, float] = {
            pitch: self._onset_time(i, pitch) if said.peak[i, pitch] else frame
            for pitch in np.flatnonzero(struck | (said.start[i] & ~sounds)).tolist()
        }
        for pitch in np.flatnonzero(ends).tolist():
            events.append(self._end(pitch, frame, begins.get(pitch, frame)))
        for pitch, time_frames in sorted(begins.items(), key=lambda b: (self._seconds(b[1]), b[0])):
            events.append(self._begin(i, pitch, time_frames, struck=bool(said.peak[i, pitch])))
        events.sort(key=lambda event: (event.time_s, event.kind == "note_on", event.pitch))
        return events

    def _onset_time(self, i: int, pitch: int) -> float:
        """The time of a peak, in frames, between frames.

        The onset head is trained towards a triangle, so the true top follows from the three
        probabilities about the peak exactly as its two flanks meet; it lies within half a frame.
        """
        assert self._onset is not None
        at = self._back + i
        before, peak, after = self._recent[self._onset, at - 1 : at + 2, pitch].tolist()
        lowest = min(before, after)
        shift = 0.5 * (after - before) / (peak - lowest) if peak > lowest else 0.0
        return max(0.0, self._next + i + min(0.5, max(-0.5, shift)))

    def _begin(self, i: int, pitch: int, time_frames: float, *, struck: bool) -> NoteEvent:
        at = self._back + i
        head = self._onset if struck and self._onset is not None else self._frame
        event = NoteEvent(
            kind="note_on",
            note_id=self._notes,
            pitch=pitch,
            velocity=self._velocity_at(at, pitch),
            confidence=round(min(1.0, float(self._recent[head, at, pitch])), 4),
            frame=self._next + i,
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
            # The head is trained about onsets: read it where an onset is likeliest.
            near = slice(at - self.settings.onset_radius_frames, at + self._delay + 1)
            at = near.start + int(np.argmax(self._recent[self._onset, near, pitch]))
        velocity = math.floor(float(self._recent[self._velocity, at, pitch]) * _MAX_VELOCITY + 0.5)
        return max(1, min(_MAX_VELOCITY, velocity))

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        on = self._sounding.pop(pitch)
        self._onset_frame[pitch] = _SILENT
        return dataclasses.replace(
            on, kind="note_off", frame=frame, time_s=self._seconds(time_frames)
        )

    def _seconds(self, frames: float) -> float:
        return round(frames * self._frame_seconds, 6)
