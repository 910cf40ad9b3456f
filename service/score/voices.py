"""Divides the notes of a staff into voices: one line of chords, or two for two rhythms at once."""

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
Sounding = tuple[float, float]  # end and pitch of a note, or of a voice's last chord
_PATHS = 16  # maximum number of paths in the beam search
_MIN_CUT, _MAX_CUT = 0.35, 2.0  # in beats: shorter overlaps are legato; maximum that counts
_CROSSED, _LEAP = 1.0, 0.03  # costs of voices that cross, and of a leap per semitone
# Minimum number of beats that two voices preserve: in a bar, and in a bar next to one with two.
_TWO, _STILL_TWO = 0.75, 0.3
_CUT_ANYWAY = 0.5  # maximum number of beats that two voices cut off, per preserved beat


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
    """Return the two lines of a staff, the upper first. The second may be empty. Chords of a line
    do not overlap.

    A bar has two voices if one voice would cut off notes that two voices preserve. While a pedal is
    held, notes overlap more than two voices can show, so one voice is used.

    Args:
        one_line: True to keep all notes in one line, for instruments other than keyboards.
    """
    rows = rows_of(note for note in notes if not note.grace)
    limits = [None] * len(rows) if one_line or not rows else _two_voices(rows, bars)
    lines: list[list[Chord]] = [[], []]
    for row, limit in zip(rows, limits, strict=True):
        split, end = limit or (0, None)
        for line, own in zip(lines, (row[split:], row[:split]), strict=True):
            if own:
                chord = chord_of(own)
                if line and line[-1].end > chord.onset:
                    line[-1] = line[-1]._replace(length=chord.onset - line[-1].onset)
                line.append(chord)
        if split and end is not None:
            chord = lines[1][-1]
            lines[1][-1] = chord._replace(length=min(chord.length, end - chord.onset))
    for note in notes:
        if note.grace:
            lower = {p for chord in lines[1] if chord.onset == note.onset for p in chord.pitches}
            is_near = any(abs(pitch - note.pitch) <= 2 for pitch in lower)
            lines[is_near].append(chord_of([note]))
    return [sorted(line, key=lambda chord: (chord.onset, not chord.grace)) for line in lines]


def _two_voices(rows: Sequence[Row], bars: Bars) -> list[tuple[int, Fraction] | None]:
    """Return for each row in a bar with two voices the number of notes in the lower voice, and the
    end of the last consecutive bar with two voices. Rows in other bars get None."""
    plain = [[(float(n.onset + n.length), n.pitch) for n in row] for row in rows]
    onsets = [float(row[0].onset) for row in rows]
    middle = float(np.median([n.pitch for row in rows for n in row]))
    both = (0.0, middle - 6), (0.0, middle + 6)
    splits = cheapest(both, zip(onsets, plain, strict=True), _options)
    starts = [start for start, _ in bars]
    bar = np.searchsorted(np.array(starts, float), onsets, "right") - 1
    single = _cut_off(onsets, plain)
    low = _cut_off(onsets, [row[:k] for row, k in zip(plain, splits, strict=True)])
    high = _cut_off(onsets, [row[k:] for row, k in zip(plain, splits, strict=True)])
    anyway = np.bincount(bar, low + high, len(bars))
    gained = np.bincount(bar, single, len(bars)) - anyway
    possible = (gained >= _STILL_TWO) & (anyway <= _CUT_ANYWAY * gained)
    two = possible & (gained >= _TWO)
    for order in (range(1, len(bars)), range(len(bars) - 2, -1, -1)):
        for place in order:
            two[place] |= possible[place] and two[place - order.step]
    ends = [*starts[1:], bars[-1][0] + bars[-1][1]]
    for place in range(len(bars) - 2, -1, -1):
        if two[place] and two[place + 1]:
            ends[place] = ends[place + 1]
    return [(k, ends[b]) if two[b] else None for k, b in zip(splits, bar.tolist(), strict=True)]


def _options(
    row: tuple[float, Sequence[Sounding]], state: tuple[Sounding, Sounding]
) -> Iterator[tuple[float, Any, int]]:
    """Yield the options for dividing the notes of a row between the low and the high voice."""
    onset, notes = row
    for split in range(len(notes) + 1):
        price, after = 0.0, list(state)
        for voice, own in enumerate((notes[:split], notes[split:])):
            end, pitch = state[voice]
            if own:
                now = own[-voice][1]  # the outer one
                price += _cut(end - onset) + _LEAP * abs(now - pitch)
                price += _cut(max(own)[0] - min(own)[0])
                after[voice] = max(own)[0], now
            elif end > onset:
                other = notes[-1][1] - pitch if voice else pitch - notes[0][1]
                price += _CROSSED * (other > 0)
        yield price, tuple(after), split


def _cut(beats: float) -> float:
    return min(beats, _MAX_CUT) if beats > _MIN_CUT else 0.0


def _cut_off(onsets: Sequence[float], rows: Sequence[Sequence[Sounding]]) -> F64:
    """Return how many beats of each row's notes are cut off if one voice plays these rows."""
    lost, following = np.zeros(len(rows)), np.inf
    for place in range(len(rows) - 1, -1, -1):
        if rows[place]:
            last, first = max(rows[place])[0], min(rows[place])[0]
            lost[place] = _cut(last - following) + _cut(min(last, following) - first)
            following = onsets[place]
    return lost
