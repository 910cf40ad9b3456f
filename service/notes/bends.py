"""Tracks the pitch curves of sounding notes: vibrato, portamento and drift.

The network's row CENTS contains, for each pitch, the distance in cents from the pitch to a spectral
peak nearby (``SpectralPeaks``). The curve of a note follows this peak from frame to frame. The peak
may move to neighbouring pitches, at most MAX_SEMITONES away::

    at pitch 61        -50 -50 -50 -40 -20 -35 -50 -50
    at pitch 60          0  20  45  50  50  50  40  20
    curve of note 60     0  20  45  60  80  65  40  20    cents

The values of a pitch are clipped to +-50. A clipped value indicates a peak at the next pitch.

The filters of low pitches respond with a delay (``lag``). The value of a frame is therefore read
that many frames later. Values are reported in batches of BATCH_FRAMES.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES, RANGE_CENTS, SCALE_CENTS
from service.notes.events import BendEvent, Event, NoteEvent
from service.notes.frames import LatestFrames
from service.protocol.checkpoint import Checkpoint, Curve

BATCH_FRAMES = 8  # frames from one report to the next
MAX_SEMITONES = 2
_EDGE_CENTS = RANGE_CENTS - 0.5
_LATER_BELOW = (43, 53, 68)  # below each of these pitches, the delay is one frame longer
HISTORY_FRAMES = 64  # number of stored frames; at least the delay from an onset to its note_on


def lag(pitch: int) -> int:
    """Return the delay of a pitch's filters in frames, measured on rendered vowels with vibrato."""
    return sum(pitch < limit for limit in _LATER_BELOW)


class BendTracker:
    """Tracks the pitch curves of one stream."""

    def __init__(self, frame_seconds: float) -> None:
        self._frame_seconds = frame_seconds
        self._frames = LatestFrames(1, HISTORY_FRAMES)
        self._rows = np.zeros((HISTORY_FRAMES, PITCHES), np.float32)
        self._offsets = [0.0] * HISTORY_FRAMES
        self._stop = 0  # frame after the last row
        self._pitches: dict[int, int] = {}  # by ID of a sounding note
        self.curves: dict[int, Curve] = {}

    def resume(self, first_frame: int, checkpoint: Checkpoint) -> None:
        """Continue where another tracker stopped. The next rows start with ``first_frame``."""
        self._stop = first_frame
        self._pitches = {event.note_id: event.pitch for event in checkpoint.sounding}
        curves = checkpoint.curves
        self.curves = {note: curves[note] for note in self._pitches if note in curves}

    def append_rows(self, rows: NDArray[np.float32], offset_cents: float) -> None:
        """Append the next n frames. rows: [n, PITCHES] of CENTS. offset_cents: added to rows."""
        (self._rows,) = self._frames.append(rows[None])
        self._offsets = [*self._offsets, *[offset_cents] * len(rows)][-len(self._rows) :]
        self._stop += len(rows)

    def step(self, frame: int, events: Iterable[NoteEvent]) -> list[Event]:
        """Return the note tracker's events at ``frame``, and the new bends. The bends of a note
        precede its note_off. At the end of a batch, the bends of all sounding notes follow."""
        out: list[Event] = []
        for event in events:
            if event.kind == "note_on":
                self._pitches[event.note_id] = event.pitch
                self.curves[event.note_id] = Curve(max(0, event.frame))
            elif event.kind == "note_off":
                end = min(event.frame, frame + 1 - lag(event.pitch))
                out += self._report(event.note_id, event.pitch, end)
                self._pitches.pop(event.note_id)
                self.curves.pop(event.note_id, None)
            out.append(event)
        if (frame + 1) % BATCH_FRAMES == 0:
            for note, pitch in self._pitches.items():
                out += self._report(note, pitch, frame + 1 - lag(pitch))
        return out

    def _report(self, note: int, pitch: int, end: int) -> list[Event]:
        """Return the unreported part of a note's curve before frame ``end``. Values that would need
        frames after the end of the stream are omitted."""
        curve, end = self.curves.get(note), min(end, self._stop - lag(pitch))
        if curve is None or curve.frame >= end:
            return []
        first_stored = self._stop - len(self._rows)  # frame of the first row
        first = max(0, curve.frame + lag(pitch) - first_stored)
        span = slice(first, first + end - curve.frame)
        values, cents = [], curve.cents
        for row, offset in zip(self._rows[span], self._offsets[span], strict=True):
            cents = round(_follow_peak(row, pitch, cents - offset) + offset, 1)
            values.append(cents)
        self.curves[note] = Curve(end, cents)
        time_s = round(curve.frame * self._frame_seconds, 6)
        return [BendEvent(note, pitch, curve.frame, time_s, tuple(values))]


def _follow_peak(row: NDArray[np.float32], pitch: int, before: float) -> float:
    """Return the distance in cents from a pitch to the peak that its note follows. before: the
    distance in the previous frame."""
    semitones = min(MAX_SEMITONES, max(-MAX_SEMITONES, round(before / 100)))
    cents = _peak_cents(row, pitch + semitones)
    if math.isnan(cents):  # without a peak, the curve continues at its last value
        return before
    step = 1 if cents > 0 else -1
    # At the edge of its range the peak may belong to the next pitch.
    while abs(cents) > _EDGE_CENTS and abs(semitones + step) <= MAX_SEMITONES:
        next_cents = _peak_cents(row, pitch + semitones + step)
        if math.isnan(next_cents) or step * next_cents < -_EDGE_CENTS:
            break
        semitones, cents = semitones + step, next_cents
        if step * cents < 0:
            break
    return 100 * semitones + cents


def _peak_cents(row: NDArray[np.float32], pitch: int) -> float:
    """Return the distance in cents from a pitch to the peak near it, or NaN without a peak."""
    value = float(row[min(PITCHES - 1, max(0, pitch))])
    return (value - 0.5) * SCALE_CENTS if value > 0 else math.nan
