"""Base class of the note trackers. It stores the sounding notes and decides where they end.

A note ends where the evidence that it sounds is greatest. With y[f] and z[f] the frame and offset
probabilities of its pitch, and b and w the bias and the offset weight of its instrument
(``TrackerSettings.evidence_of``), the evidence at frame f is the sum of

    log(y / (1 - y)) + b - w max(0, log(z / (1 - z)) + OFFSET_ODDS)

over the note's frames before f. While the pedal is down, the pedal's bias of the instrument is
added to b. The frame probability of a ringing string falls slowly, so its offset depends on z.

The note ends at the maximum of the sum. This is decided once the sum has fallen by DROP below the
maximum, or WAIT frames after it. The tracker stores only the fall from the maximum, which restarts
from 0 at each new maximum (Page's CUSUM test), so a resumed tracker needs only the latest WAIT
frames. At least the first ``min_note_frames`` frames of a note count as sounding. UPDATE_S after an
onset, the instrument of the note and its bias may change. If the sum has then fallen by
DROP_BEFORE_UPDATE, the note ends. Otherwise the sum restarts.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from service.notes.dynamics import add_note, velocity_of
from service.notes.events import UPDATE_S, NoteEvent
from service.notes.frames import OVERTONES, add_log_odds, onset_shift, peaks
from service.notes.tracker_settings import DEFAULT_VELOCITY, ONSET_RADIUS, TrackerSettings
from service.protocol.checkpoint import Checkpoint, Dynamics

OFFSET_ODDS = 2.0  # a note is shortened by offset probabilities with log-odds above -2 (0.12)
DROP = 3.0  # fall of the sum that ends a note
DROP_BEFORE_UPDATE = 2.0  # fall that ends a note whose instrument may change in this frame
VOICE_SHARE = 0.65  # share of the voice in the recent notes above which a line is decoded as sung
WAIT = 16  # number of frames (0.19 s) without a new maximum that end a note
# If a lower pitch has a likelier onset, the log-odds of its overtone's onset are reduced by this
# share of the difference between the two log-odds.
OVERTONE_DISCOUNT = 0.4
ANY_PITCH = PITCHES // 2  # the pedal's row has the same value at every pitch of the filterbank
_MIN_PROBABILITY = 2e-3  # minimum distance of probabilities from 0 and 1, so that log-odds exist


@dataclass(slots=True)
class _Sounding:
    event: NoteEvent
    best: int  # frame at which its evidence is greatest, where the note would end
    bias: float
    pedal_bias: float  # added to the bias while the pedal is down
    offset_weight: float
    fallen: float = 0.0  # fall of the evidence from its maximum

    def restart(self, best: int) -> None:
        """Set the maximum of the evidence to the frame ``best``."""
        self.best, self.fallen = best, 0.0


class Tracker(ABC):
    """Tracker of the notes of one stream. Its probabilities must be 0 to 1, without NaN.

    Attributes:
        columns, last_age: in anytime mode, the number of frames decoded from each window, and the
            age in frames at which a frame has its full look-ahead; else 1 and 0. The newest frame
            of a window has the age 0.
        history_frames: number of latest frames that affect the next decisions.
        on_delay_frames: maximum delay from a note's onset to its note_on, beyond the look-ahead.
        off_delay_frames: maximum delay from a note's offset to its note_off, beyond the look-ahead.
        dynamics: loudness to which velocities are relative.
    """

    columns, last_age = 1, 0
    history_frames: int
    on_delay_frames: float
    off_delay_frames: float

    def __init__(
        self,
        settings: TrackerSettings,
        frame_seconds: float,
        heads: tuple[str, ...],
        offset_age: int,
    ) -> None:
        """Create a tracker.

        Args:
            heads: names of the rows of the probabilities. "velocity", "offset" and "pedal" may be
                missing.
            offset_age: age in frames at which a frame is evidence for or against an offset.
        """
        self.settings = settings
        self._frame_seconds = frame_seconds
        self._n_heads = len(heads)
        rows = {head: row for row, head in enumerate(heads)}
        self._frame, self._onset = rows["frame"], rows["onset"]
        self._velocity, self._pedal = rows.get("velocity"), rows.get("pedal")
        self._offset = rows.get("offset")
        self._offset_age = offset_age
        self._latest = np.zeros((len(heads), 0, PITCHES), np.float32)  # the latest frames
        self._oldest = 0  # frame of the first column of `_latest`
        self._held_frames = settings.min_note_frames  # a note does not end in its first frames
        self._pushed = self._resumed = 0  # earlier sessions decided the frames before `_resumed`
        self._sounding: dict[int, _Sounding] = {}  # by pitch
        self._notes = 0  # number of notes that have started
        self.dynamics = Dynamics()
        self._update_frames = round(UPDATE_S / frame_seconds)
        self.set_instrument_weights({})

    @property
    def decided_frames(self) -> int:
        """Number of frames whose onsets are decided; in anytime mode, of frames received."""
        return max(self._pushed, self._resumed)

    @property
    def earliest_onset_frames(self) -> dict[int, int]:
        """In anytime mode, the earliest frame at which each silent pitch may start again. Pitches
        that may start in all frames of the next windows are omitted."""
        return {}

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        """Continue where another tracker of the same stream stopped. The next block starts with
        ``first_frame``. For an identical state, this must be 0 or at least ``history_frames``
        before ``checkpoint.frames``. Earlier frames give no events."""
        self._pushed, self._resumed = first_frame, checkpoint.frames
        self._notes, self.dynamics = checkpoint.notes, checkpoint.dynamics
        for event in checkpoint.sounding:
            self._add_sounding(event)

    def set_instrument_weights(self, weights: Mapping[str, float]) -> None:
        """Adapt the onset threshold, and the choice between singing and other lines, to the
        instruments. weights: number of recent notes by instrument."""
        self._onset_threshold = self.settings.onset_threshold_for(weights)
        self._sings = weights.get("voice", 0.0) > VOICE_SHARE * sum(weights.values())

    @abstractmethod
    def read(self, block: NDArray[np.float32], new: int, offset_cents: float = 0.0) -> None:
        """Accept a block of ``new`` frames. In anytime mode ``columns`` - 1 earlier frames precede
        the new frames. The caller must then call ``step`` once for each new frame. offset_cents:
        added to the row CENTS."""

    @abstractmethod
    def step(self) -> list[NoteEvent]:
        """Process the next frame. Return the events that it decides, in order."""

    def set_instrument(self, event: NoteEvent) -> None:
        """Set the instrument of a sounding note, which affects where the note ends."""
        note = self._sounding.get(event.pitch)
        if note is not None and note.event.note_id == event.note_id:
            evidence = self.settings.evidence_of(event.instrument)
            note.bias, note.pedal_bias, note.offset_weight = evidence

    def finish(self, end_frame: int) -> list[NoteEvent]:
        """End all notes (see ``end_all``). A tracker that still has undecided frames first decides
        them as if silence followed."""
        return self.end_all(end_frame)

    def end_all(self, frame: int) -> list[NoteEvent]:
        """End all notes at ``frame`` or earlier. Each note lasts at least one frame."""
        ends = {p: max(frame, note.event.frame + 1) for p, note in self._sounding.items()}
        return [self._end_at_best(pitch, end, end) for pitch, end in sorted(ends.items())]

    def _find_offsets(self) -> list[NoteEvent]:
        """Return the note_offs that the frame with the age ``offset_age`` decides."""
        frame = self._pushed - self._offset_age
        column = frame - self._oldest
        probabilities, is_pressed = self._latest[self._frame, column], False
        offsets = self._latest[self._offset, column] if self._offset is not None else None
        if self._pedal is not None:
            pedal = self._latest[self._pedal, column, ANY_PITCH]
            is_pressed = bool(pedal >= self.settings.pedal_on_threshold)
        ended_pitches: list[int] = []
        for pitch, note in self._sounding.items():
            onset = note.event.frame
            held = onset + self._held_frames  # the note sounds at least until this frame
            gain = _log_odds(float(probabilities[pitch])) + note.bias
            if is_pressed:
                gain += note.pedal_bias
            if offsets is not None and note.offset_weight:
                odds = _log_odds(float(offsets[pitch])) + OFFSET_ODDS
                gain -= note.offset_weight * max(0.0, odds)
            note.fallen = max(0.0, note.fallen - gain)
            is_maximum = note.fallen == 0 or frame < held
            if is_maximum:
                note.restart(max(frame + 1, held))
            may_change = onset + self._update_frames == self._pushed
            drop = DROP_BEFORE_UPDATE if may_change else DROP
            has_ended = note.fallen >= drop or frame + 1 - note.best >= WAIT
            if has_ended and self._pushed >= self._resumed:
                ended_pitches.append(pitch)
            elif may_change:
                note.restart(max(frame + 1, held))
        end = self._pushed
        return [self._end_at_best(pitch, end, end) for pitch in sorted(ended_pitches)]

    def _onset_peaks(self) -> NDArray[np.bool_]:
        """Return True at the onset peaks of the latest frames, [frames, PITCHES], at which a frame
        probability, or one of the ONSET_RADIUS after it, reaches ``frame_on_threshold``."""
        onset, threshold = self._latest[self._onset], self.settings.least_onset_threshold
        is_peak = peaks(onset, ONSET_RADIUS, threshold)
        if is_peak.any():
            reaches = self._latest[self._frame] >= self.settings.frame_on_threshold
            confirms = reaches.copy()
            for shift in range(1, ONSET_RADIUS + 1):
                confirms[:-shift] |= reaches[shift:]
            is_peak &= confirms
        return is_peak

    def _onsets(self, frame: int, pitch: int | list[int]) -> NDArray[np.float32]:
        """Return the onset probabilities of one or more pitches within ONSET_RADIUS of a frame."""
        column = frame - self._oldest
        span = slice(column - ONSET_RADIUS, column + ONSET_RADIUS + 1)
        return self._latest[self._onset, span, pitch]

    def _onset_probability(self, frame: int, pitch: int) -> float:
        """Return the probability that a note starts at an onset peak. It is less than the onset
        probability if the pitch is an overtone of a pitch with a likelier onset."""
        own = float(self._latest[self._onset, frame - self._oldest, pitch])
        lower = [pitch - interval for interval in OVERTONES if interval <= pitch]
        strongest = min(float(self._onsets(frame, lower).max(initial=0.0)), 1 - _MIN_PROBABILITY)
        if strongest <= own:
            return own
        excess = math.log(strongest / (1 - strongest)) - math.log(own / (1 - own))
        return add_log_odds(own, -OVERTONE_DISCOUNT * excess)

    def _onset_time(self, frame: int, pitch: int) -> float:
        """Return the time, in frames, of the onset whose peak is at ``frame``."""
        column = frame - self._oldest
        shift = onset_shift(self._latest[self._onset, column - 1 : column + 2, pitch])
        return max(0.0, frame + shift + self.settings.onset_correction_frames)

    def _begin(self, frame: int, pitch: int, time_frames: float, confidence: float) -> NoteEvent:
        velocity, confidence = self._velocity_at(frame, pitch), round(confidence, 4)
        time_s = self._seconds(time_frames)
        event = NoteEvent("note_on", self._notes, pitch, velocity, confidence, frame, time_s)
        self._notes += 1
        self._add_sounding(event)
        return event

    def _velocity_at(self, frame: int, pitch: int) -> int:
        if self._velocity is None:
            return DEFAULT_VELOCITY
        # The velocity head is trained around onsets, so use its value at the likeliest onset.
        nearest = frame + int(self._onsets(frame, pitch).argmax()) - ONSET_RADIUS
        loudness = float(self._latest[self._velocity, nearest - self._oldest, pitch])
        self.dynamics = add_note(self.dynamics, loudness)
        return velocity_of(self.dynamics, loudness)

    def _add_sounding(self, event: NoteEvent) -> None:
        held = event.frame + self._held_frames
        best = max(held, self._pushed - self._offset_age)
        evidence = self.settings.evidence_of(event.instrument)
        self._sounding[event.pitch] = _Sounding(event, best, *evidence)

    def _end_at_best(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        """End a note where its evidence is greatest, but not after ``frame``."""
        best = self._sounding[pitch].best
        if best < frame:
            return self._end(pitch, best, best)
        return self._end(pitch, frame, time_frames)

    def _end(self, pitch: int, frame: int, time_frames: float) -> NoteEvent:
        on = self._sounding.pop(pitch).event
        return replace(on, kind="note_off", frame=frame, time_s=self._seconds(time_frames))

    def _seconds(self, frames: float) -> float:
        return round(frames * self._frame_seconds, 6)


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, _MIN_PROBABILITY), 1 - _MIN_PROBABILITY)
    return math.log(bounded / (1 - bounded))
