"""Detects the beats of a performance in progress. Each beat is reported once, with a bounded delay.

Every ``TICK_S`` the beat tracker continues from the last reported beat, and reports new beats that
are older than ``LAG_S``. The beats depend only on the notes, not on the times or the sizes of the
updates. If the confidence is too low, no beats are reported, and the search starts again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mode
from typing import Annotated

import numpy as np
from pydantic import Field

from service.score import beat_tracker
from service.score.beat_tracker import MIN_CHORDS, SHORTEST_S, BeatState, chords_of
from service.score.beats import F64, MAX_BEATS_PER_BAR, MIN_STEADY_CONFIDENCE, Beats
from service.score.metre import assign_bars

TICK_S = 2.0
LAG_S = 2.0
CONTEXT_S = 24.0
"""Duration of the latest music that determines bars and confidence. It is also the maximum delay of
the beats that are reported first. Later beats have a delay of at most ``LAG_S + TICK_S``."""
_CERTAIN, _CHORDS = 0.95, 16  # minimum confidence and number of chords for the first beats
MAX_PICKUP_S = 60.0
"""Maximum time by which the first bar may start before the performance (a pickup)."""
_COVERED = 0.5  # minimum share of a performance with beats; below it, the rhythm is free


@dataclass(frozen=True, slots=True)
class LiveBeat:
    """A reported beat. ``place``: position in the bar, from 0. See ``Beats`` for the other
    fields."""

    time_s: Annotated[float, Field(ge=-MAX_PICKUP_S, le=86_400)]
    place: Annotated[int, Field(ge=0, lt=MAX_BEATS_PER_BAR)]
    beats_per_bar: Annotated[int, Field(ge=2, le=MAX_BEATS_PER_BAR)]
    subdivision: Annotated[int, Field(ge=2, le=3)] = 2
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0


class LiveBeats:
    """Detects the beats of a performance in progress, from ``begin_s`` on."""

    def __init__(self, begin_s: float = 0.0) -> None:
        self.reported: list[LiveBeat] = []
        self._begin_s = begin_s
        self._ticks = 0
        self._last: BeatState | None = None  # last reported beat; None if the search starts again
        self._run = 0  # index of the first reported beat of the current search

    @property
    def due_s(self) -> float:
        """Time of the next search for beats, which needs all earlier onsets and offsets."""
        return self._begin_s + (self._ticks + 1) * TICK_S

    def update(self, notes: F64, until_s: float) -> list[LiveBeat]:
        """Return new beats.

        Args:
            notes: [notes, 4] onset and offset in s (infinite while a note sounds), MIDI pitch,
                velocity of all notes from ``CONTEXT_S`` before ``due_s`` on, in any order.
            until_s: time before which all onsets and offsets are decided.
        """
        count = len(self.reported)
        while self.due_s <= until_s:
            self._tick(notes, self.due_s, LAG_S)
            self._ticks += 1
        return self.reported[count:]

    def finish(self, notes: F64, end_s: float) -> list[LiveBeat]:
        """Return the last beats, at the end of a performance."""
        count = len(self.reported)
        self.update(notes, end_s)
        self._tick(notes, end_s, 0.0)
        return self.reported[count:]

    def _tick(self, notes: F64, now_s: float, lag_s: float) -> None:
        begin_s, last = now_s - CONTEXT_S, self._last
        notes = notes[(notes[:, 0] >= begin_s) & (notes[:, 0] < now_s)]
        notes = notes[np.lexsort((notes[:, 2], notes[:, 0]))]
        notes[:, 1] = np.minimum(notes[:, 1], now_s)
        if (chords := chords_of(notes)) is None:
            self._last = None
            return
        from_s = last.time_s if last else chords.time_s[0] - beat_tracker.LEAD_S
        path = beat_tracker.best_path(chords, from_s, now_s, start=last)[1 if last else 0 :]
        run = self.reported[self._run :] if last else []
        before = [beat for beat in run if beat.time_s >= begin_s]
        if len(before) + len(path) < MIN_CHORDS:
            return
        divide = before[0].subdivision if before else path[0].subdivision
        beats = beat_tracker.beats_of_path(chords, path, divide, [b.time_s for b in before])
        if last is None:
            self._run = len(self.reported)
        min_confidence, min_chords = (MIN_STEADY_CONFIDENCE, 0) if last else (_CERTAIN, _CHORDS)
        if beats.confidence < min_confidence or len(chords.time_s) < min_chords:
            self._last = None
            return
        bars, new_s = _continued(before, notes, beats), beats.time_s[len(before) :].tolist()
        for state, beat_s, (place, metre) in zip(path, new_s, bars, strict=True):
            if state.time_s >= now_s - lag_s:
                break
            self._last = state
            if not self.reported or beat_s > self.reported[-1].time_s + SHORTEST_S / 2:
                beat = LiveBeat(beat_s, place, metre, state.subdivision, beats.confidence)
                self.reported.append(beat)


def _continued(before: Sequence[LiveBeat], notes: F64, beats: Beats) -> list[tuple[int, int]]:
    """Return, for each beat after the reported beats, its position in the bar and the number of
    beats in the bar. The current bar keeps its reported length."""
    rest: list[tuple[int, int]] = []
    first = usual = None
    if before:
        usual = before[-1].beats_per_bar
        rest = [(place, usual) for place in range(before[-1].place + 1, usual)]
        first = len(before) + len(rest)
        if first >= len(beats.time_s):
            return rest[: len(beats.time_s) - len(before)]
    barred = assign_bars(notes, beats, first=first, before=usual, keep=True)
    return rest + [(int(place), barred.beats_per_bar) for place in barred.bar[first or 0 :]]


def fill_gaps(reported: Sequence[LiveBeat], sounding_s: float | None = None) -> Beats | None:
    """Return the reported beats with their gaps filled. A long gap is filled with complete bars. A
    longer beat that continues the count of its bar, or whose tempo lasts, is not a gap. Return None
    if there are fewer than two beats.

    Args:
        sounding_s: duration of the performance without its long pauses, if the beats must also be
            enough for a steady performance. The result is then None if there are fewer than
            ``MIN_CHORDS`` beats, or they cover too little of the performance.
    """
    if len(reported) < (2 if sounding_s is None else MIN_CHORDS):
        return None
    time_s, bar, missing_s = [reported[0].time_s], [reported[0].place], 0.0
    period_s = reported[1].time_s - reported[0].time_s
    for last, beat, after in zip(reported, reported[1:], [*reported[2:], None], strict=False):
        gap_s = beat.time_s - last.time_s
        next_s = after.time_s - beat.time_s if after else 0.0
        # A gap is longer than the periods before and after it. A beat at a new, slower tempo is not
        # longer than the next.
        ratio = gap_s / max(period_s, next_s, SHORTEST_S / 2)
        continues = beat.place == (last.place + 1) % last.beats_per_bar
        steps = 1 if continues and ratio < last.beats_per_bar + 0.5 else max(1, round(ratio))
        if steps > 2 * beat.beats_per_bar:
            rest = (beat.place - bar[-1]) % beat.beats_per_bar
            steps = rest + round((steps - rest) / beat.beats_per_bar) * beat.beats_per_bar
        if steps > 1:
            missing_s += gap_s
        period_s = gap_s / steps
        time_s += np.linspace(time_s[-1], beat.time_s, steps + 1)[1:].tolist()
        bar += [*((bar[-1] + np.arange(1, steps)) % beat.beats_per_bar), beat.place]
    covered_s = reported[-1].time_s - reported[0].time_s - missing_s
    if sounding_s is not None and covered_s < _COVERED * sounding_s:
        return None
    return Beats(
        time_s=np.array(time_s),
        bar=np.array(bar),
        beats_per_bar=mode(beat.beats_per_bar for beat in reported),
        subdivision=mode(beat.subdivision for beat in reported),
        confidence=float(np.mean([beat.confidence for beat in reported])),
    )
