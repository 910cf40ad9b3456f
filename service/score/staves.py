"""Hands and voices: which staff a note stands on, and which line it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, pairwise, starmap
from typing import Any

from service.score.quantise import Placed

MOST_VOICES = 2
_SPAN = 14  # semitones that a hand reaches
_MIDDLE = 60
_HEARD_REST = Fraction(1, 2)  # of a beat; shorter rests are how notes are played
_KEPT = 12  # rows of splits that are followed at once


@dataclass(frozen=True)
class Chord:
    """Notes of one length that begin together; times in beats, names as a writer takes them, in
    tablature with string and fret of each."""

    onset: Fraction
    length: Fraction
    names: tuple[str, ...]
    pitches: tuple[int, ...]
    grace: bool = False
    places: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> Fraction:
        return self.onset if self.grace else self.onset + self.length


def hands(placed: Sequence[Placed], pitch: Sequence[int]) -> list[bool]:
    """Whether the right hand plays each note.

    The cheapest row of splits, one for each onset (dynamic programme): hands that stretch too far
    cost, as do hands that leap from where they were and a split far from the middle.
    """
    order = sorted(range(len(placed)), key=lambda place: (placed[place].onset, pitch[place]))
    right = [True] * len(placed)
    rows = [list(group) for _, group in groupby(order, key=lambda place: placed[place].onset)]
    # Cost, where the hands are, and the splits so far, the latest first.
    paths: list[tuple[float, tuple[float, float], tuple[Any, ...]]] = [(0.0, (48.0, 67.0), ())]
    for row in rows:
        pitches = [pitch[place] for place in row]
        following = []
        for cost, at, splits in paths:
            for split in range(len(row) + 1):
                price, now = cost, list(at)
                for hand, notes in enumerate((pitches[:split], pitches[split:])):
                    if notes:
                        now[hand] = sum(notes) / len(notes)
                        beyond = (notes[-1] - _MIDDLE, _MIDDLE - notes[0])[hand]
                        price += max(0, notes[-1] - notes[0] - _SPAN) + 0.12 * max(0, beyond)
                        price += 0.06 * abs(now[hand] - at[hand])
                following.append((price, (now[0], now[1]), (split, splits)))
        following.sort(key=lambda path: path[0])
        paths = following[:_KEPT]
    splits = paths[0][2]
    for row in reversed(rows):
        split, splits = splits
        for place in row[:split]:
            right[place] = False
    return right


def voices(notes: Sequence[Chord]) -> list[list[Chord]]:
    """Lines that never overlap, at most ``MOST_VOICES``.

    Notes of one onset and length make a chord. A chord goes to a line that is free, the nearest in
    pitch; if none is, the line that is nearest to its end ends there.
    """
    lines: list[list[Chord]] = [[]]
    ordered = sorted(notes, key=lambda n: (n.onset, not n.grace, n.length, -n.pitches[0]))
    for (onset, grace, length), group in groupby(
        ordered, key=lambda n: (n.onset, n.grace, n.length)
    ):
        members = {n.pitches[0]: n.names[0] for n in group}
        pitches = tuple(sorted(members))
        chord = Chord(onset, length, tuple(members[p] for p in pitches), pitches, grace)
        free = [line for line in lines if not line or line[-1].end <= onset]
        if not free and len(lines) < MOST_VOICES:
            lines.append([])
            free = lines[-1:]
        if free:
            min(free, key=lambda line: _distance(line, chord)).append(chord)
            continue
        line = min(lines, key=lambda line: (line[-1].onset == onset, line[-1].end))
        last = line[-1]
        if last.onset == onset:  # a third length at one onset: it joins the chord there
            names = {**dict(zip(last.pitches, last.names, strict=True)), **members}
            pitches = tuple(sorted(names))
            line[-1] = replace(last, names=tuple(names[p] for p in pitches), pitches=pitches)
        else:
            line[-1] = replace(last, length=onset - last.onset)
            line.append(chord)
    return [[*starmap(_until, pairwise(line)), *line[-1:]] for line in lines]


def _until(chord: Chord, following: Chord) -> Chord:
    """The chord until the next of its line, if it sounds for about as long: no rest is heard."""
    if chord.grace:
        return chord
    room = following.onset - chord.onset
    if room - chord.length <= _HEARD_REST and chord.length >= room / 2:
        return replace(chord, length=room)
    return chord


def _distance(line: Sequence[Chord], chord: Chord) -> float:
    return abs(max(line[-1].pitches) - max(chord.pitches)) if line else 24.0
