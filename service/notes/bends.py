"""The pitch of a note while it sounds: vibrato, portamento, a voice that drifts.

A network's row CENTS says how far the spectral peak at each pitch is from it
(``SpectralPeaks``). The curve of a note follows it from frame to frame, into the rows of
neighbouring pitches where the voice goes there, MOST_SEMITONES at most::

    row of pitch 61    . . . . . . -40 -20 -35 . . .
    row of pitch 60    . . 0 20 45 .   .   .   40 20 .
    curve of note 60   . . 0 20 45 60  80  65  40 20 .    cents

Filters hear the pitch of a moment ago, low ones longer: a frame's value is read so many frames
later (``lag``). Values are reported in pieces of PIECE frames, whatever the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.config import PITCHES, RANGE_CENTS, SCALE_CENTS
from service.notes.events import BendEvent, Event, NoteEvent
from service.notes.frames import LatestFrames
from service.protocol.options import Count

PIECE = 8  # frames from one report to the next
MOST_SEMITONES = 2
_EDGE_CENTS = RANGE_CENTS - 0.5
_LATER_BELOW = (43, 53, 68)
HISTORY_FRAMES = 64  # frames that a curve may reach back: a note may be known that late


def lag(pitch: int) -> int:
    """Frames by which the filters of a pitch are late, measured on rendered vowels with vibrato."""
    return sum(pitch < above for above in _LATER_BELOW)


@dataclass(frozen=True, slots=True)
class Curve:
    """Of a sounding note: the first frame that has not been reported, and the cents of the one
    before, 0 at the beginning."""

    frame: Count
    cents: Annotated[float, Field(ge=-300, le=300)] = 0.0


class BendTracker:
    """Follows the notes of one stream. Pure: no input except rows and events, in order."""

    def __init__(self, frame_seconds: float) -> None:
        self._frame_seconds = frame_seconds
        self._frames = LatestFrames(1, HISTORY_FRAMES)
        self._rows = np.zeros((0, PITCHES), np.float32)
        self._raised = [0.0] * HISTORY_FRAMES
        self._stop = 0  # the frame after the last row
        self._pitches: dict[int, int] = {}  # by note that sounds
        self.curves: dict[int, Curve] = {}

    def resume(
        self, first_frame: int, sounding: Iterable[NoteEvent], curves: Mapping[int, Curve]
    ) -> None:
        """Go on where another one stopped; ``first_frame`` will be remembered first."""
        self._stop = first_frame
        self._pitches = {event.note_id: event.pitch for event in sounding}
        self.curves = {note: curves[note] for note in self._pitches if note in curves}

    def append_rows(self, row: NDArray[np.float32], offset_cents: float) -> None:
        """The row CENTS of the next frames, [n, PITCHES], and what is to be added to it."""
        (self._rows,) = self._frames.append(row[None])
        self._raised = [*self._raised, *[offset_cents] * len(row)][-len(self._rows) :]
        self._stop += len(row)

    def step(self, frame: int, events: Iterable[NoteEvent]) -> list[Event]:
        """The tracker's events at ``frame`` and, before the end of a note or at the end of a piece,
        its curve so far."""
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
        if (frame + 1) % PIECE == 0:
            for note, pitch in self._pitches.items():
                out += self._report(note, pitch, frame + 1 - lag(pitch))
        return out

    def _report(self, note: int, pitch: int, end: int) -> list[Event]:
        """The note's curve before frame ``end``."""
        curve = self.curves.get(note)
        if curve is None or curve.frame >= end:
            return []
        at = curve.frame + lag(pitch) - (self._stop - len(self._rows))
        values, now = [], curve.cents
        span = slice(max(0, at), max(0, at) + end - curve.frame)
        for row, raised in zip(self._rows[span], self._raised[span], strict=True):
            now = round(_followed(row, pitch, now - raised) + raised, 1)
            values.append(now)
        self.curves[note] = Curve(end, now)
        time_s = round(curve.frame * self._frame_seconds, 6)
        return [BendEvent(note, pitch, curve.frame, time_s, tuple(values))]


def _followed(row: NDArray[np.float32], pitch: int, before: float) -> float:
    """Cents above the pitch, from those in the frame before."""
    semitones = min(MOST_SEMITONES, max(-MOST_SEMITONES, round(before / 100)))
    found = _at(row, pitch + semitones)
    if math.isnan(found):  # no sound: as before
        return before
    step = 1 if found > 0 else -1
    # At the row's edge the peak may be that of the next pitch.
    while abs(found) > _EDGE_CENTS and abs(semitones + step) <= MOST_SEMITONES:
        further = _at(row, pitch + semitones + step)
        if math.isnan(further) or step * further < -_EDGE_CENTS:
            break
        semitones, found = semitones + step, further
        if step * found < 0:
            break
    return 100 * semitones + found


def _at(row: NDArray[np.float32], pitch: int) -> float:
    value = float(row[min(PITCHES - 1, max(0, pitch))])
    return (value - 0.5) * SCALE_CENTS if value > 0 else math.nan
