"""Divides the notes of a staff into one voice, or into two where two rhythms sound at once."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from service.score.beats import F64
from service.score.quantise import QuantisedNote

Bars = Sequence[tuple[Fraction, int]]  # first beat and number of beats
Fret = tuple[int, int]  # string from 1, the highest, and fret
Row = list[QuantisedNote]  # notes that begin together, the lowest first
Sounding = tuple[float, float]  # end and pitch of a note, or of the last chord in a voice
_PATHS = 16  # maximum number of paths in the beam search
_MIN_CUT, _MAX_CUT = 0.35, 2.0  # in beats: minimum overlap that is not legato; maximum that counts
_CROSSED, _LEAP = 1.0, 0.03  # cost if the voices cross; cost per semitone of a leap
# Minimum number of beats that two voices must preserve in a bar for it to have two voices: in
# general, and next to a bar with two voices.
_TWO, _STILL_TWO = 0.75, 0.3
_CUT_ANYWAY = 0.5  # maximum number of beats that two voices still cut off, per preserved beat


def index_at(starts: Sequence[tuple[Fraction, int]], at: Fraction) -> int:
    """Return the index of the last bar or section that starts at or before ``at``, in beats; 0 if
    all start later."""
    return max(0, bisect_right(starts, at, key=itemgetter(0)) - 1)


class Chord(NamedTuple):
    """Notes that begin together. Times are in beats, and pitches ascend. ``length`` is the length
    of the longest note. ``frets`` has the string and fret of each pitch in tablature."""

    onset: Fraction
    length: Fraction
    pitches: tuple[int, ...]
    grace: bool = False
    frets: tuple[Fret, ...] = ()

    @property
    def end(self) -> Fraction:
        return self.onset + self.length


def chord_of(notes: Sequence[QuantisedNote]) -> Chord:
    """Return the chord of notes that begin together."""
    pitches = tuple(sorted({note.pitch for note in notes}))
    return Chord(notes[0].onset, max(note.length for note in notes), pitches, notes[0].grace)


def rows_of(notes: Iterable[QuantisedNote]) -> list[Row]:
    """Return the notes of each onset, the lowest first."""
    ordered = sorted(notes, key=attrgetter("onset", "pitch"))
    return [list(row) for _, row in groupby(ordered, key=attrgetter("onset"))]


def cheapest(
    state: Any, rows: Iterable[Any], options: Callable[[Any, Any], Iterable[tuple[float, Any, Any]]]
) -> list[Any]:
    """Return the choices for all rows with the lowest total cost (beam search).

    Args:
        options: function of a row and a state that yields the cost, the next state and the choice
            of each option.
    """
    paths: list[tuple[float, Any, Any]] = [(0.0, state, ())]
    for row in rows:
        following = [
            (cost + price, next_state, (choice, trail))
            for cost, state, trail in paths
            for price, next_state, choice in options(row, state)
        ]
        paths = sorted(following, key=itemgetter(0))[:_PATHS]
    choices, trail = [], paths[0][2]
    while trail:
        choice, trail = trail
        choices.append(choice)
    return choices[::-1]


def voices(notes: Sequence[QuantisedNote], bars: Bars, one_line: bool = False) -> list[list[Chord]]:
    """Return the upper and the lower voice, which may be empty. Chords of a voice do not overlap.

    A bar has two voices if one voice would cut off notes that two voices preserve. A bar has one
    voice if its notes overlap more than two voices can show, for example while a pedal is held.

    Args:
        one_line: True to write all notes in one voice, for instruments other than keyboards and in
            free rhythm.
    """
    rows = rows_of(note for note in notes if not note.grace)
    divisions = [None] * len(rows) if one_line or not rows else _two_voices(rows, bars)
    upper: list[Chord] = []
    lower: list[Chord] = []
    for row, division in zip(rows, divisions, strict=True):
        split, end = division or (0, None)
        for voice, own_notes in ((upper, row[split:]), (lower, row[:split])):
            if own_notes:
                chord = chord_of(own_notes)
                if voice and voice[-1].end > chord.onset:
                    voice[-1] = voice[-1]._replace(length=chord.onset - voice[-1].onset)
                voice.append(chord)
        if split and end is not None:  # the lower voice stops at `end`
            lower[-1] = lower[-1]._replace(length=min(lower[-1].length, end - lower[-1].onset))
    for note in notes:
        if note.grace:
            pitches = [p for chord in lower if chord.onset == note.onset for p in chord.pitches]
            is_lower = any(abs(pitch - note.pitch) <= 2 for pitch in pitches)
            (lower if is_lower else upper).append(chord_of([note]))
    return [sorted(v, key=lambda chord: (chord.onset, not chord.grace)) for v in (upper, lower)]


def _two_voices(rows: Sequence[Row], bars: Bars) -> list[tuple[int, Fraction] | None]:
    """Return, for each row in a bar with two voices, the number of notes in the lower voice and the
    end of the last consecutive bar with two voices. Rows in other bars get None."""
    notes = [[(float(note.onset + note.length), note.pitch) for note in row] for row in rows]
    onsets = [float(row[0].onset) for row in rows]
    middle = float(np.median([note.pitch for row in rows for note in row]))
    start = (0.0, middle - 6), (0.0, middle + 6)
    splits = cheapest(start, zip(onsets, notes, strict=True), _options)
    lower = [row[:split] for row, split in zip(notes, splits, strict=True)]
    upper = [row[split:] for row, split in zip(notes, splits, strict=True)]
    starts = [start for start, _ in bars]
    bar_of_row = np.searchsorted(np.array(starts, float), onsets, "right") - 1
    lost_by_one = np.bincount(bar_of_row, _cut_off(onsets, notes), len(bars))
    lost_in_both = _cut_off(onsets, lower) + _cut_off(onsets, upper)
    lost_by_two = np.bincount(bar_of_row, lost_in_both, len(bars))
    preserved = lost_by_one - lost_by_two
    possible = (preserved >= _STILL_TWO) & (lost_by_two <= _CUT_ANYWAY * preserved)
    has_two = possible & (preserved >= _TWO)
    for order in (range(1, len(bars)), range(len(bars) - 2, -1, -1)):  # extend to neighbours
        for bar in order:
            has_two[bar] |= possible[bar] and has_two[bar - order.step]
    ends = [*starts[1:], bars[-1][0] + bars[-1][1]]
    for bar in range(len(bars) - 2, -1, -1):
        if has_two[bar] and has_two[bar + 1]:
            ends[bar] = ends[bar + 1]
    divisions = zip(splits, bar_of_row.tolist(), strict=True)
    return [(split, ends[bar]) if has_two[bar] else None for split, bar in divisions]


def _options(
    row: tuple[float, Sequence[Sounding]], state: tuple[Sounding, Sounding]
) -> Iterator[tuple[float, Any, int]]:
    """Yield cost, next state and number of notes in the lower voice for each division of a row."""
    onset, notes = row
    for split in range(len(notes) + 1):
        price, after = 0.0, list(state)
        for voice, own in enumerate((notes[:split], notes[split:])):
            end, pitch = state[voice]
            if own:
                ends, pitches = zip(*own, strict=True)
                outer = pitches[-1] if voice else pitches[0]  # the highest or the lowest
                price += _cut(end - onset) + _LEAP * abs(outer - pitch)
                price += _cut(max(ends) - min(ends))
                after[voice] = max(ends), outer
            elif end > onset:  # the voice still sounds, and the other voice has all notes
                crosses = notes[-1][1] > pitch if voice else notes[0][1] < pitch
                price += _CROSSED * crosses
        yield price, tuple(after), split


def _cut(beats: float) -> float:
    """Return the cost of cutting off the last ``beats`` of a note."""
    return min(beats, _MAX_CUT) if beats > _MIN_CUT else 0.0


def _cut_off(onsets: Sequence[float], rows: Sequence[Sequence[Sounding]]) -> F64:
    """Return the number of beats by which the notes of each row are cut off, or prolonged to the
    end of their chord, if one voice plays the rows."""
    lost, following = np.zeros(len(rows)), np.inf
    for place in range(len(rows) - 1, -1, -1):
        if rows[place]:
            last, first = max(rows[place])[0], min(rows[place])[0]
            lost[place] = _cut(last - following) + _cut(min(last, following) - first)
            following = onsets[place]
    return lost
