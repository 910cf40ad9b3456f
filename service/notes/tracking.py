"""What both note trackers share: the heads that they read, and the notes that sound."""

import dataclasses
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from service.notes import onsets
from service.notes.dynamics import Dynamics
from service.notes.events import NoteEvent
from service.notes.resume import ResumePoint
from service.notes.tracker_settings import TrackerSettings

Known = list[tuple[int, NoteEvent]]
"""Events, each with the frame that made it known."""


class Tracker(ABC):
    """Notes of one stream. Pure: no clock, and no input except the probabilities, in order.

    Probabilities are float32 [heads, n, 128] from 0 to 1 (see ``as_probabilities``).

    Attributes:
        columns: frames read from each window in anytime mode, else 1.
        last_age: in anytime mode, frames from a frame to the newest of its window when it has its
            full look-ahead, else 0.
        history_frames: latest frames that affect the next decisions.
        on_delay_frames: maximum, beyond the look-ahead, from the time of a note_on until it is
            known.
        off_delay_frames: the same for a note_off.
        dynamics: the level that velocities are relative to.
    """

    columns = 1
    last_age = 0
    history_frames: int
    on_delay_frames: float
    off_delay_frames: float

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...]
    ) -> None:
        """Args:
        frame_seconds: seconds from frame to frame.
        heads: names of the rows of the probabilities; "frame" is required, "onset", "velocity",
            "offset" and "pedal" are used if present.
        """
        self.settings = settings
        self._frame_seconds = frame_seconds
        self._n_heads = len(heads)
        rows = {head: row for row, head in enumerate(heads)}
        self._frame = rows["frame"]
        self._onset = rows.get("onset")
        self._velocity = rows.get("velocity")
        self._offset = rows.get("offset") if settings.offset_threshold is not None else None
        self._pedal = rows.get("pedal")
        self._classifier = settings.onset_classifier
        if self._classifier:
            self._cell_rows = onsets.cell_rows(heads)
        # Minimum onset probability of a peak that may begin a note.
        self._candidate = onsets.CANDIDATE if self._classifier else settings.onset_threshold
        # Frame probability with which a note begins without an onset, and for how many frames; in
        # models without an onset head, as early as possible.
        self._start_threshold = settings.frame_start_threshold
        self._start_frames = settings.frame_start_frames
        if self._onset is None:
            self._start_threshold = settings.frame_on_threshold
            self._start_frames = settings.on_delay_frames + 1
        self._pushed = 0
        self._resumed = 0  # earlier frames were decided elsewhere
        self._sounding: dict[int, NoteEvent] = {}
        self._notes = 0
        self.dynamics = Dynamics()

    @property
    @abstractmethod
    def decided(self) -> int:
        """Number of frames whose beginnings are decided."""

    @property
    def first_free_frames(self) -> dict[int, int]:
        """In anytime mode, the state of silent pitches that a resumed tracker needs."""
        return {}

    def resume(self, first_frame: int, point: ResumePoint) -> None:
        """Continue where another tracker of the same stream stopped.

        Nothing is decided until frame ``point.frames`` is reached. If the ``history_frames`` frames
        before it are pushed first, or all from frame 0, the state is then identical.

        Args:
            first_frame: the frame that will be pushed first, at most ``point.frames``.
        """
        self._pushed = first_frame
        self._resumed = point.frames
        self._notes = point.notes
        self.dynamics = point.dynamics
        for event in point.sounding:
            self._hold(event)

    @abstractmethod
    def push(self, probabilities: NDArray[np.float32]) -> Known:
        """Process the next frames; return the events now known, in the order in which they became
        known."""

    def push_block(self, block: NDArray[np.float32], new: int) -> Known:
        """``push`` for so many new frames, in anytime mode one after the other; ``columns`` - 1
        frames before come first."""
        return self.push(block)

    @abstractmethod
    def finish(self, end_frame: int) -> Known:
        """The stream ends before ``end_frame``: decide the last frames as if silence followed, and
        end all notes there."""

    def close(self) -> list[NoteEvent]:
        """End all notes at the first frame whose beginnings are undecided."""
        return self._end_all(self.decided)

    def _judged(
        self, probabilities: NDArray[np.float32], found: NDArray[np.bool_], first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """The peaks of the onset head, by frame: row of ``found``, pitch, and the probability that
        a note begins there.

        Args:
            probabilities: [heads, frames, 128].
            found: the peaks among frames ``first``, ``first`` + 1, ...: [n, 128].
            end: the first frame that is not known.
        """
        rows, pitches = found.nonzero()
        at = first + rows
        if not self._classifier or not len(rows):
            return rows, pitches, probabilities[self._onset, at, pitches]
        known = np.minimum(onsets.AFTER, end - 1 - at)
        inputs = onsets.surroundings(probabilities, self._cell_rows, at, pitches, known)
        return rows, pitches, self._classifier(inputs).astype(np.float32)

    def _begin(
        self,
        known: NDArray[np.float32],
        at: int,
        frame: int,
        pitch: int,
        time_frames: float,
        confidence: float,
    ) -> NoteEvent:
        """The note_on at column ``at`` of known, [heads, n, 128]."""
        event = NoteEvent(
            kind="note_on",
            note_id=self._notes,
            pitch=pitch,
            velocity=self._velocity_at(known, at, pitch),
            confidence=round(confidence, 4),
            frame=frame,
            time_s=self._seconds(time_frames),
        )
        self._notes += 1
        self._hold(event)
        return event

    def _velocity_at(self, known: NDArray[np.float32], at: int, pitch: int) -> int:
        """MIDI velocity, 1 to 127, of a note that begins."""
        if self._velocity is None:
            return self.settings.default_velocity
        if self._onset is not None:
            # The head is trained around onsets: read it where an onset is likeliest.
            radius = self.settings.onset_radius_frames
            near = known[self._onset, at - radius : at + radius + 1, pitch]
            at += int(np.argmax(near)) - radius
        loudness = float(known[self._velocity, at, pitch])
        self.dynamics = self.dynamics.after(loudness)
        return self.dynamics.velocity(loudness)

    def _fell(
        self, known: NDArray[np.float32], at: int, frame: int, pitch: int, earliest: int
    ) -> int:
        """Where a note ends that is struck again at ``frame``, which is in column ``at``: the first
        of the consecutive frames below the off threshold that lead up to the strike."""
        low = self._low(known[:, : at + 1, pitch])
        fell = frame
        while fell > earliest and low[at - frame + fell - 1]:
            fell -= 1
        return fell

    def _low(self, known: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Where the frame probability is below the threshold that ends a note: of [heads, ...]."""
        frame, with_pedal = known[self._frame], self.settings.pedal_frame_off_threshold
        low = frame < self.settings.frame_off_threshold
        if self._pedal is not None and with_pedal is not None:
            low &= (frame < with_pedal) | (known[self._pedal] < self.settings.pedal_on_threshold)
        return low

    def _hold(self, event: NoteEvent) -> None:
        self._sounding[event.pitch] = event

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        on = self._sounding.pop(pitch)
        return dataclasses.replace(
            on, kind="note_off", frame=frame, time_s=self._seconds(time_frames)
        )

    def _end_all(self, frame: int) -> list[NoteEvent]:
        return [self._end(pitch, frame, frame) for pitch in sorted(self._sounding)]

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
