"""Chooses the marks of a score: dynamics, pedal, clefs and octave lines."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

import numpy as np

from service.score.beats import smoothest
from service.score.quantise import QuantisedNote
from service.score.voices import Bars, Chord, index_at

LEVELS = {"p": -18.0, "mf": 0.0, "f": 18.0}  # mean velocity of a bar relative to their median
_SPREAD, _CHANGE = 8.0, 5.0  # standard deviation of a bar's mean velocity; cost of a change in nats
_AFTER = 0.25  # in beats: time after a chord at which the pedal is usually pressed
_NEAR = 0.4  # in beats: a pedal change this close to a chord is written at the chord
_STEP = 2  # other pedal changes are written at multiples of 1 / _STEP beat
# Cost of a change of clef, or of an unusual first one. Each note has a cost: its distance from the
# staff in semitones.
_CLEF_CHANGE = 60.0
# Distances from the staff in semitones: minimum that needs a ledger line; maximum that needs three;
# minimum of the inner note in a chord at an octave line (negative: within the staff).
_ONE_LINE, _THREE_LINES, _INNER = 4, 12, -3


class Clef(NamedTuple):
    """A clef. ``low`` and ``high``: sounding MIDI pitches of the lowest and the highest line."""

    sign: str
    line: int
    octave: int
    low: int
    high: int


CLEFS = {
    "Treble": Clef("G", 2, 0, 64, 77),
    "Treble8vb": Clef("G", 2, -1, 52, 65),
    "Alto": Clef("C", 3, 0, 53, 67),
    "Tenor": Clef("C", 4, 0, 50, 64),
    "Bass": Clef("F", 4, 0, 43, 57),
    "Bass8vb": Clef("F", 4, -1, 31, 45),
    "Tab": Clef("TAB", 5, 0, 40, 64),
}


class Press(NamedTuple):
    """Positions in beats at which the pedal goes down and up."""

    down: Fraction
    up: Fraction


def dynamics(
    onsets: Sequence[Fraction], velocities: Sequence[int], bars: Bars
) -> dict[Fraction, str]:
    """Return the dynamic marks by the onset, in beats, at which each lasting level starts. Without
    a change there are no marks, because the absolute level is unknown. Onsets ascend."""
    if not onsets:
        return {}
    starts, places = [float(start) for start, _ in bars], [float(onset) for onset in onsets]
    bar = np.searchsorted(starts, places, side="right")
    _, first, count = np.unique(bar, return_index=True, return_counts=True)
    mean = np.add.reduceat(np.array(velocities, float), first) / count
    centres = np.median(mean) + np.array(list(LEVELS.values()))
    level = smoothest(0.5 * ((mean[:, None] - centres) / _SPREAD) ** 2, _CHANGE)
    changes = np.flatnonzero(np.diff(level, prepend=-1))
    names = list(LEVELS)
    marks = {onsets[first[change]]: names[level[change]] for change in changes.tolist()}
    return marks if len(marks) > 1 else {}


def presses(moves: Iterable[Sequence[float]], onsets: Iterable[Fraction]) -> list[Press]:
    """Return the written presses of the pedal, which do not overlap.

    Args:
        moves: positions in beats at which the pedal goes down and up, for each press.
        onsets: positions of the chords in beats.
    """
    chords = sorted(set(onsets))
    places = np.array(chords, float)
    written: list[Press] = []

    def near(place: float) -> Fraction:
        chord = int(np.abs(places - place).argmin())
        is_near = abs(places[chord] - place) <= _NEAR
        return chords[chord] if is_near else Fraction(round(place * _STEP), _STEP)

    for begin, end in moves:
        down, up = near(begin - _AFTER), near(end)
        if written:
            down = max(down, written[-1].up)
        if down < up:
            written.append(Press(down, up))
    return written


def clefs_of_bars(
    notes: Sequence[QuantisedNote], bars: Bars, choices: Sequence[str], changes: bool = True
) -> list[str]:
    """Return the clef of each bar: the one whose staff is nearest to the notes. It changes for long
    passages only, and after empty bars, not before them.

    Args:
        choices: the clefs. The first is the usual one.
        changes: False for one clef.
    """
    cost = np.zeros((len(bars), len(choices)))
    is_empty = np.full(len(bars), True)
    for note in notes:
        bar = index_at(bars, note.onset)
        is_empty[bar] = False
        for column, clef in enumerate(choices):
            low, high = CLEFS[clef][3:]
            cost[bar, column] += max(0, low - note.pitch, note.pitch - high)
    if changes:
        cost[0, 1:] += _CLEF_CHANGE
    columns = smoothest(cost, _CLEF_CHANGE if changes else np.inf)
    for bar in (np.flatnonzero(is_empty[1:]) + 1).tolist():
        columns[bar] = columns[bar - 1]
    return [choices[column] for column in columns]


def sections(
    line: Sequence[Chord], interruptions: Sequence[Fraction], rest: int
) -> list[list[Chord]]:
    """Return the sections of a voice between rests of at least ``rest`` beats. Chords during which
    another voice starts a note end a section and are omitted. ``interruptions``: the onsets of
    these notes, ascending."""
    found: list[list[Chord]] = [[]]
    ends = [*(chord.onset for chord in line[1:]), *(chord.end for chord in line[-1:])]
    for chord, end in zip(line, ends, strict=True):
        is_free = bisect_left(interruptions, chord.onset) == bisect_left(interruptions, end)
        last = found[-1]
        if not is_free or (last and chord.onset - last[-1].end >= rest):
            found.append([])
        if is_free:
            found[-1].append(chord)
    return found


def octave_lines(line: Sequence[Chord], clef: str) -> list[tuple[str, list[Chord]]]:
    """Return the octave lines. Each consists of "8va", or "8vb" in the bass clef, and three chords
    or more. All of its chords need a ledger line, and at least one needs more than three."""
    low, high = CLEFS[clef][3:]
    lines = []
    for name, sign, edge in (("8va", 1, high), ("8vb", -1, low)):
        if name == "8vb" and clef != "Bass":
            continue

        def reach(chord: Chord, sign: int = sign, edge: int = edge) -> list[int]:
            """Return the distances in semitones from the staff to the inner and outer note."""
            return sorted(sign * (pitch - edge) for pitch in (chord.pitches[0], chord.pitches[-1]))

        def fits(chord: Chord) -> bool:
            inner, outer = reach(chord)
            return inner >= _INNER and outer >= _ONE_LINE

        runs = [list(run) for fit, run in groupby(line, key=fits) if fit]
        far = (max(reach(chord)[1] for chord in run) > _THREE_LINES for run in runs)
        far_runs = [run for run, is_far in zip(runs, far, strict=True) if is_far]
        lines += [(name, run) for run in far_runs if len(run) > 2]
    return lines
