"""Which hand, voice and string plays each note."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby, pairwise, starmap
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from service.score.quantise import QuantisedNote

MOST_VOICES = 2
_HAND, _MIDDLE = 14, 60  # semitones that a hand reaches; the pitch where hands part
_HEARD_REST = Fraction(1, 2)  # of a beat; shorter rests are how notes are played
OPEN = (64, 59, 55, 50, 45, 40)  # MIDI pitches of a guitar's strings, the highest first
FRETS, SPAN = 19, 4  # that a string has, and that a hand reaches
# Costs of a fret's way, height and reach; what a note is worth.
_MOVE, _HIGH, _STRETCH, _PLAYED = 1.0, 0.15, 0.5, 50.0
_DISSONANT = (1, 2, 6, 10, 11)  # intervals in semitones: the ghost has most of them
_GHOST = 6.0  # price of leaving out a note a semitone from another of its chord
_KEPT = 16  # paths that are followed at once

Fret = tuple[int, int]  # string from 1, the highest, and fret


class Chord(NamedTuple):
    """Notes of one length that begin together; times in beats, pitches ascending, in tablature with
    string and fret of each."""

    onset: Fraction
    length: Fraction
    pitches: tuple[int, ...]
    grace: bool = False
    frets: tuple[Fret, ...] = ()

    @property
    def end(self) -> Fraction:
        return self.onset if self.grace else self.onset + self.length


def hands(notes: Iterable[QuantisedNote]) -> tuple[list[QuantisedNote], list[QuantisedNote]]:
    """Notes of the right hand and of the left.

    Hands that stretch too far cost, as do hands that leap from where they were and a split far from
    the middle.
    """
    ordered = sorted(notes, key=attrgetter("onset", "pitch"))
    rows = [list(row) for _, row in groupby(ordered, key=attrgetter("onset"))]

    def splits(
        row: Sequence[QuantisedNote], at: Sequence[float]
    ) -> Iterator[tuple[float, Any, int]]:
        for split in range(len(row) + 1):
            price, now = 0.0, list(at)
            for hand, own in enumerate((row[:split], row[split:])):
                if own:
                    low, high = own[0].pitch, own[-1].pitch
                    now[hand] = sum(note.pitch for note in own) / len(own)
                    beyond = (high - _MIDDLE, _MIDDLE - low)[hand]
                    price += max(0, high - low - _HAND) + 0.12 * max(0, beyond)
                    price += 0.06 * abs(now[hand] - at[hand])
            yield price, now, split

    chosen = list(zip(rows, _cheapest([48.0, 67.0], rows, splits), strict=True))
    right = [note for row, split in chosen for note in row[split:]]
    return right, [note for row, split in chosen for note in row[:split]]


def _cheapest(
    state: Any, rows: Iterable[Any], ways: Callable[[Any, Any], Iterable[tuple[float, Any, Any]]]
) -> list[Any]:
    """What to choose for each row (dynamic programme), if ``ways`` gives the costs of what may be
    chosen for a row in a state, and the states that follow."""
    paths: list[tuple[float, Any, Any]] = [(0.0, state, ())]
    for row in rows:
        following = [
            (cost + price, then, (choice, trail))
            for cost, state, trail in paths
            for price, then, choice in ways(row, state)
        ]
        paths = sorted(following, key=itemgetter(0))[:_KEPT]
    choices, trail = [], paths[0][2]
    while trail:
        choice, trail = trail
        choices.append(choice)
    return choices[::-1]


def voices(notes: Iterable[Chord]) -> list[list[Chord]]:
    """Lines that never overlap, at most ``MOST_VOICES``.

    Notes of one onset and length make a chord. A chord goes to a line that is free, the nearest in
    pitch; if none is, the line that is nearest to its end ends there.
    """
    lines: list[list[Chord]] = [[]]
    ordered = sorted(notes, key=lambda n: (n.onset, not n.grace, n.length, -n.pitches[0]))
    for _, group in groupby(ordered, key=attrgetter("onset", "grace", "length")):
        chord = _together(group)
        free = [line for line in lines if not line or line[-1].end <= chord.onset]
        if not free and len(lines) < MOST_VOICES:
            lines.append([])
            free = lines[-1:]
        if free:
            min(free, key=lambda line: _distance(line, chord)).append(chord)
            continue
        line = min(lines, key=lambda line: (line[-1].onset == chord.onset, line[-1].end))
        if line[-1].onset == chord.onset:  # a third length at one onset: it joins the chord there
            line[-1] = _together([line[-1], chord])
        else:
            line[-1] = line[-1]._replace(length=chord.onset - line[-1].onset)
            line.append(chord)
    return [[*starmap(_until, pairwise(line)), *line[-1:]] for line in lines]


def _together(chords: Iterable[Chord]) -> Chord:
    """One chord of all, as long as the first."""
    first, *_ = chords = list(chords)
    return first._replace(pitches=tuple(sorted({p for chord in chords for p in chord.pitches})))


def _until(chord: Chord, following: Chord) -> Chord:
    """The chord until the next of its line, if it sounds for about as long: no rest is heard."""
    room = following.onset - chord.onset
    if not chord.grace and room - chord.length <= _HEARD_REST and chord.length >= room / 2:
        return chord._replace(length=room)
    return chord


def _distance(line: Sequence[Chord], chord: Chord) -> float:
    return abs(max(line[-1].pitches) - max(chord.pitches)) if line else 24.0


def tab_line(notes: Iterable[Chord]) -> list[Chord]:
    """One line of chords with their frets: all that begins together, until the next; the cheapest
    row of hand positions. What no hand reaches is left out."""
    plain = sorted((n for n in notes if not n.grace), key=attrgetter("onset"))
    rows = [list(row) for _, row in groupby(plain, key=attrgetter("onset"))]
    chords = [_together(row)._replace(length=max(n.length for n in row)) for row in rows]

    def ways(
        found: list[tuple[float, dict[int, Fret]]], at: float
    ) -> Iterator[tuple[float, float, Any]]:
        for price, frets in found:
            pressed = [fret for _, fret in frets.values() if fret]
            price += _HIGH * sum(pressed) - _PLAYED * len(frets)
            now = at
            if pressed:
                now = float(min(pressed))
                price += _STRETCH * (max(pressed) - now) + _MOVE * abs(now - at)
            yield price, now, frets

    found = (list(_fingerings(chord.pitches)) for chord in chords)
    line: list[Chord] = []
    for chord, frets in zip(chords, _cheapest(2.0, found, ways), strict=True):
        if line:
            line[-1] = line[-1]._replace(length=min(line[-1].length, chord.onset - line[-1].onset))
        if frets:
            pitches, places = zip(*sorted(frets.items()), strict=True)
            line.append(chord._replace(pitches=pitches, frets=places))
    return line


def _fingerings(pitches: Sequence[int]) -> Iterator[tuple[float, dict[int, Fret]]]:
    """Yield ways to play a chord, each with its price: with all notes, and without one note of each
    semitone. Such a note is often a ghost, which would send an open chord up the neck."""
    yield from ((0.0, frets) for frets in _frets(pitches[::-1]))
    for pitch in pitches:
        if len(pitches) > 2 and not {pitch - 1, pitch + 1}.isdisjoint(pitches):
            rest = [other for other in pitches[::-1] if other != pitch]
            clashes = sum((pitch - other) % 12 in _DISSONANT for other in rest)
            price = _GHOST - clashes - _PLAYED
            yield from ((price, frets) for frets in _frets(rest))


def _frets(pitches: Sequence[int], first: int = 0) -> Iterator[dict[int, Fret]]:
    """Ways to play pitches, from high to low, on the strings from ``first`` on."""
    if not pitches or first == len(OPEN):
        yield {}
        return
    pitch, *rest = pitches
    reached = False
    for string in range(first, len(OPEN)):
        fret = pitch - OPEN[string]
        if not 0 <= fret <= FRETS:
            continue
        for others in _frets(rest, string + 1):
            pressed = [f for f in (fret, *(f for _, f in others.values())) if f]
            if not pressed or max(pressed) - min(pressed) <= SPAN:
                reached = True
                yield {pitch: (string + 1, fret), **others}
    if not reached:
        yield from _frets(rest, first)
