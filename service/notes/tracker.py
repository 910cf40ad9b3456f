"""Converts probabilities to notes causally, so streams and recordings give the same notes.

**Polyphonic music**: with n the newest frame and r = ONSET_RADIUS, a pitch

* starts at frame n - r if its onset probability has a peak there, the probability that a note
  starts (less at overtones, see ``Tracker._onset_probability``) reaches the onset threshold, and
  its frame probability reaches ``frame_on_threshold`` in one of the frames n - r to n;
* starts again at such a peak if it already sounds and its last onset is at least
  ``min_note_frames`` earlier. The old note ends where the sum of the evidence that it sounds was
  greatest (``service.notes.base_tracker``), or where the new note starts if that is earlier;
* ends where this sum was greatest, as soon as the frames up to n - r show it.

**Monophonic music** is decoded as the best path through its frames (``service.notes.monophonic``):
in continuous pitch if a singer performs (``service.notes.singing``), else in semitones. In each
frame of a path, take the largest frame probability of the pitch and its two neighbours. A note
starts after silence only if the mean of these values reaches MIN_MEAN, which excludes most speech.
Its onset is the frame with the highest onset probability among its first r + 1 frames, or the first
frame if all are below MIN_ONSET. A sounding pitch starts again at onset peaks that reach
AGAIN_THRESHOLD. When the music becomes polyphonic, the undecided frames are decoded as
polyphonic. When it becomes monophonic again, the path continues from the last decided frame.

Events are returned in the order in which they are decided. A note_off may therefore follow the
note_on of another pitch that has a later time. Events of one pitch are in time order. Live events
cannot be retracted, so a note that turns out to be short gets the minimum length.
"""

import numpy as np

from model.config import CENTS, PITCHES
from service.notes.base_tracker import WAIT, Tracker
from service.notes.events import NoteEvent
from service.notes.frames import LatestFrames, peaks
from service.notes.monophonic import (
    AGAIN_THRESHOLD,
    AHEAD_FRAMES,
    F32,
    MEMORY_FRAMES,
    MIN_FRAMES,
    MIN_ONSET,
    SECOND_FRAMES,
    MonophonyDetector,
    SemitoneLine,
)
from service.notes.singing import SungLine
from service.notes.tracker_settings import ONSET_RADIUS, TrackerSettings
from service.protocol.checkpoint import Checkpoint

MIN_MEAN = 0.15


class NoteTracker(Tracker):
    """Tracker of a stream whose frames each arrive once, with their full look-ahead."""

    def __init__(
        self, settings: TrackerSettings, frame_seconds: float, heads: tuple[str, ...]
    ) -> None:
        super().__init__(settings, frame_seconds, heads, offset_age=ONSET_RADIUS)
        self._monophony = MonophonyDetector(heads) if settings.line else None
        self._ahead, self.history_frames = ONSET_RADIUS, WAIT
        if settings.line:
            self._ahead, self.history_frames = AHEAD_FRAMES, MEMORY_FRAMES + SECOND_FRAMES
        self._semitones = SemitoneLine()
        self._cents = heads.index(CENTS) if CENTS in heads and settings.line else None
        self._sung = SungLine()
        # A monophonic note is decided late: its first frames no longer count as evidence.
        self._held_frames = max(settings.min_note_frames, self._ahead - ONSET_RADIUS)
        self._past = self._ahead + ONSET_RADIUS  # frames before a block
        self.history_frames += self._past
        self._frames = LatestFrames(len(heads), self._past)
        self._first = 0  # first frame that this tracker receives
        self._decided = -self._ahead
        self._is_polyphonic = self._monophony is None
        self._polyphonic: list[bool] = []  # by frame of the block
        self._onset_pitches: dict[int, list[int]] = {}  # by column of the block
        # The time of an onset may precede its frame by half a frame and by a negative correction.
        self.on_delay_frames = self._ahead + 0.5 - min(0.0, settings.onset_correction_frames)
        self.off_delay_frames = max(self.on_delay_frames, ONSET_RADIUS + WAIT)

    @property
    def decided_frames(self) -> int:
        return max(self._decided, self._resumed - self._ahead)

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        self._first = first_frame
        self._decided = first_frame - self._ahead
        self._sung.resume(first_frame)
        super().resume(first_frame, checkpoint)

    def read(self, block: F32, new: int, offset_cents: float = 0.0) -> None:
        if self._monophony is None:
            self._read(block, [True] * new)
        else:
            self._read(block, *self._monophony.process(block), offset_cents)

    def _read(
        self,
        block: F32,
        polyphonic: list[bool],
        bias: F32 | None = None,
        offset_cents: float = 0.0,
    ) -> None:
        self._oldest = self._pushed - self._past
        self._latest = self._frames.append(block)
        self._polyphonic = polyphonic
        self._onset_pitches = {}
        for column, pitch in np.argwhere(self._onset_peaks()).tolist():
            self._onset_pitches.setdefault(column, []).append(pitch)
        frame, onset = self._latest[self._frame], self._latest[self._onset]
        first = self._past - self._ahead
        if self._cents is not None:
            rows = block[self._onset], block[self._cents]
            self._sung.read(frame[first:], *rows, offset_cents)
        if bias is not None and not all(polyphonic):
            self._semitones.read(frame[first:], onset[first:], bias)

    def step(self) -> list[NoteEvent]:
        newest = self._pushed
        index = newest - self._oldest - self._past  # position in the block
        self._is_polyphonic = self._polyphonic[index]
        decided = newest + 1 - (ONSET_RADIUS if self._is_polyphonic else self._ahead)
        events: list[NoteEvent] = []
        if newest >= self._resumed:
            for frame in range(max(0, self._decided), decided):
                if self._is_polyphonic:
                    events += self._step_polyphonic(frame)
                else:
                    events += self._step_monophonic(frame, index)
        self._decided = max(self._decided, decided)
        if not self._is_polyphonic:  # monophonic notes end where their path ends
            for note in self._sounding.values():
                held = note.event.frame + self._held_frames
                note.restart(max(newest + 1 - ONSET_RADIUS, held))
        elif newest - ONSET_RADIUS >= self._first:  # earlier frames were not received
            events += self._find_offsets()
        self._pushed += 1
        return events

    # -- polyphonic -------------------------------------------------------------------------------

    def _step_polyphonic(self, frame: int) -> list[NoteEvent]:
        events: list[NoteEvent] = []
        # Time in s, pitch, time in frames and probability of each onset.
        starts: list[tuple[float, int, float, float]] = []
        for pitch in self._onset_pitches.get(frame - self._oldest, ()):
            note = self._sounding.get(pitch)
            if note and frame - note.event.frame < self.settings.min_note_frames:
                continue
            probability = self._onset_probability(frame, pitch)
            if probability < self._onset_threshold:
                continue
            time_frames = self._onset_time(frame, pitch)
            starts.append((self._seconds(time_frames), pitch, time_frames, probability))
            if note:
                events.append(self._end_at_best(pitch, frame, time_frames))
        events.sort(key=lambda event: (event.time_s, event.pitch))
        for _, pitch, time_frames, probability in sorted(starts):
            events.append(self._begin(frame, pitch, time_frames, probability))
        return events

    # -- monophonic -------------------------------------------------------------------------------

    def _step_monophonic(self, frame: int, i: int) -> list[NoteEvent]:
        """Return the events at ``frame``. i: index in the block of the frame that decides them."""
        sounding = [self._sounding[pitch].event for pitch in sorted(self._sounding)]
        if any(frame - note.frame < MIN_FRAMES for note in sounding):
            return []
        line = self._sung if self._sings and self._cents is not None else self._semitones
        gains = line.gains(i, sounding)
        if gains is None:
            return [self._end(note.pitch, frame, frame) for note in sounding]
        if not sounding:
            starts = gains.start > gains.silent and self._is_audible(frame, gains.pitch)
            return self._begin_after(frame, gains.pitch) if starts else []
        held_gain = max(gains.held)
        held = sounding.pop(gains.held.index(held_gain)).pitch
        # Several notes sound only if the music has just been polyphonic.
        events = [self._end(other.pitch, frame, frame) for other in sounding]
        if gains.start > max(held_gain, gains.silent):
            events += self._begin_after(frame, gains.pitch)
        elif gains.silent > held_gain:
            events.append(self._end(held, frame, frame))
        elif peaks(self._onsets(frame, held)[:, None], ONSET_RADIUS, AGAIN_THRESHOLD)[ONSET_RADIUS]:
            events += self._begin_after(frame, held)
        return events

    def _is_audible(self, frame: int, pitch: int) -> bool:
        """Return True if the frame probabilities suffice for a note after silence."""
        column = frame - self._oldest
        near = slice(max(0, pitch - 1), pitch + 2)
        values = self._latest[self._frame, column : column + self._ahead + 1, near]
        return bool(values.max(axis=1).mean() >= MIN_MEAN)

    def _begin_after(self, frame: int, pitch: int) -> list[NoteEvent]:
        """Start a note at its likeliest onset from ``frame`` on, or at ``frame`` if none is likely.
        Return its note_on, preceded by the note_off of the sounding note."""
        near = self._onsets(frame, pitch)[ONSET_RADIUS:]
        time_frames = max(0.0, frame + self.settings.onset_correction_frames)
        if near.max() >= MIN_ONSET:
            frame += int(near.argmax())
            time_frames = self._onset_time(frame, pitch)
        ends = [self._end(sounding, frame, time_frames) for sounding in list(self._sounding)]
        column = frame - self._oldest
        values = self._latest[self._frame, column : column + ONSET_RADIUS + 1, pitch]
        confidence = float(values.max())
        return [*ends, self._begin(frame, pitch, time_frames, confidence)]

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """Decide the undecided frames as if silence followed, and end all notes. These frames are
        polyphonic or monophonic like the newest frame."""
        wait = ONSET_RADIUS if self._is_polyphonic else self._ahead
        silence = np.zeros((self._n_heads, wait, PITCHES), np.float32)
        bias = None if self._monophony is None else self._monophony.process(silence)[1]
        self._read(silence, [self._is_polyphonic] * wait, bias)
        events = [event for _ in range(wait) for event in self.step()]
        return events + self.end_all(end_frame)
