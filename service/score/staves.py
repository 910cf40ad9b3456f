"""Divides notes between the hands of a keyboard, and chooses strings and frets of a guitar."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from service.score.quantise import QuantisedNote
from service.score.voices import Chord, Fret, Row, cheapest, chord_of, rows_of

_HAND, _MIDDLE = 14, 60  # reach of a hand in semitones; usual pitch at which hands are divided
# Number of beats before and after a chord whose pitches move this division; maximum share of the
# way from the usual pitch to the middle of these pitches.
_NEAR, _FOLLOWED = 2, 0.7
# Costs per semitone: beyond the division, of leaps, and of wide chords. Cost of alternating hands.
_BEYOND, _LEAP, _WIDE, _ALTERNATION = 0.12, 0.06, 0.04, 0.4
OPEN = (64, 59, 55, 50, 45, 40)  # MIDI pitches of a guitar's strings, the highest first
FRETS, SPAN = 19, 4  # number of frets of a string; reach of a hand in frets
# Costs per fret: of a move of the hand, of high positions, and of a stretch. Gain of a played note.
_MOVE, _HIGH, _STRETCH, _PLAYED = 1.0, 0.15, 0.5, 50.0
_DISSONANT = (1, 2, 6, 10, 11)  # intervals in semitones that suggest a false note
_GHOST = 6.0  # cost of omitting a note that is a semitone from another note of its chord
_OUTER = 3.0  # cost of omitting the highest or the lowest note
_OCTAVE, _ABOVE = 12, 4.0  # highest fret of usual chords; cost of each fret above it
Frets = dict[int, Fret]  # string and fret of each pitch


def hands(notes: Iterable[QuantisedNote]) -> tuple[list[QuantisedNote], list[QuantisedNote]]:
    """Return the notes of the right hand, and the notes of the left hand.

    A division of a chord costs more if a hand stretches far, leaps from its last position, or plays
    far beyond the pitch between the hands, or if one hand replaces the other.
    """
    rows = rows_of(notes)

    def splits(
        place: tuple[Row, float], state: tuple[Sequence[float], tuple[bool, ...]]
    ) -> Iterator[tuple[float, Any, int]]:
        (row, middle), (positions, last_used) = place, state
        for split in range(len(row) + 1):
            price, new_positions = 0.0, list(positions)
            used = split > 0, split < len(row)
            if used != last_used and used == last_used[::-1]:
                price += _ALTERNATION
            for hand, played in enumerate((row[:split], row[split:])):
                if played:
                    low, high = played[0].pitch, played[-1].pitch
                    new_positions[hand] = sum(note.pitch for note in played) / len(played)
                    beyond = (high - middle, middle - low)[hand]
                    price += max(0, high - low - _HAND) + _WIDE * (high - low)
                    price += _BEYOND * max(0, beyond)
                    price += _LEAP * abs(new_positions[hand] - positions[hand])
            yield price, (new_positions, used), split

    start = [48.0, 67.0], (True, True)
    splits_of_rows = cheapest(start, zip(rows, _middles(rows), strict=True), splits)
    chosen = list(zip(rows, splits_of_rows, strict=True))
    right = [note for row, split in chosen for note in row[split:]]
    return right, [note for row, split in chosen for note in row[:split]]


def _middles(rows: Sequence[Row]) -> Iterator[float]:
    """Yield the pitch between the hands at each row. It moves from middle C towards the middle of
    the near pitches if one hand cannot reach all of these. If one hand can, it stays, because a
    high or low melody would otherwise alternate between the staves."""
    onsets = [row[0].onset for row in rows]
    for onset in onsets:
        near = rows[bisect_left(onsets, onset - _NEAR) : bisect_right(onsets, onset + _NEAR)]
        low, high = min(row[0].pitch for row in near), max(row[-1].pitch for row in near)
        followed = min(_FOLLOWED, max(0.0, (high - low) / _HAND - 1))
        yield _MIDDLE + followed * ((low + high) / 2 - _MIDDLE)


def tab_line(notes: Iterable[QuantisedNote]) -> list[Chord]:
    """Return one line of chords with the frets that have the lowest total cost. Notes that the hand
    cannot reach are omitted."""
    chords = [chord_of(row) for row in rows_of(n for n in notes if not n.grace)]
    fingerings = (list(_fingerings(chord.pitches)) for chord in chords)
    line: list[Chord] = []
    for chord, frets in zip(chords, cheapest(2.0, fingerings, _options), strict=True):
        if line:
            line[-1] = line[-1]._replace(length=min(line[-1].length, chord.onset - line[-1].onset))
        if frets:
            pitches, places = zip(*sorted(frets.items()), strict=True)
            line.append(chord._replace(pitches=pitches, frets=places))
    return line


def _options(
    fingerings: list[tuple[float, Frets]], position: float
) -> Iterator[tuple[float, float, Frets]]:
    """Yield the cost, the next position of the hand and the frets of each fingering of a chord."""
    for cost, frets in fingerings:
        pressed = [fret for _, fret in frets.values() if fret]
        cost += _HIGH * sum(pressed) - _PLAYED * len(frets)
        if len(frets) > 2:
            cost += _ABOVE * sum(max(0, fret - _OCTAVE) for fret in pressed)
        new_position = float(min(pressed, default=position))
        if pressed:
            cost += _STRETCH * (max(pressed) - new_position)
            cost += _MOVE * abs(new_position - position)
        yield cost, new_position, frets


def _fingerings(pitches: Sequence[int]) -> Iterator[tuple[float, Frets]]:
    """Yield the cost and frets of fingerings of a chord, with all of its notes or, if it has three
    or more, without one note. A note may be omitted if it is a semitone from another note, because
    one of the two is often false. If every fingering of the complete chord needs a fret above
    _OCTAVE, any note may be omitted, because a single false note would move an open chord up the
    neck."""
    complete = list(_frets(pitches[::-1]))
    yield from ((0.0, frets) for frets in complete)
    is_low = any(
        len(frets) == len(pitches) and max(fret for _, fret in frets.values()) <= _OCTAVE
        for frets in complete
    )
    for omitted in pitches if len(pitches) > 2 else ():
        rest = [pitch for pitch in pitches[::-1] if pitch != omitted]
        if omitted - 1 in pitches or omitted + 1 in pitches:
            # Omitting it does not lose the gain of a played note. A dissonant note is often false.
            dissonances = sum((omitted - pitch) % 12 in _DISSONANT for pitch in rest)
            cost = _GHOST - dissonances - _PLAYED
        elif is_low:
            continue
        else:
            cost = _OUTER if omitted in (pitches[0], pitches[-1]) else 0.0
        yield from ((cost, frets) for frets in _frets(rest))


def _frets(pitches: Sequence[int], first: int = 0) -> Iterator[Frets]:
    """Yield the fingerings of pitches, from high to low, on the strings from ``first`` on. Pitches
    that the hand cannot reach are omitted."""
    if not pitches or first == len(OPEN):
        yield {}
        return
    pitch, *rest = pitches
    is_reached = False
    for string in range(first, len(OPEN)):
        fret = pitch - OPEN[string]
        if not 0 <= fret <= FRETS:
            continue
        for others in _frets(rest, string + 1):
            frets = {pitch: (string + 1, fret), **others}
            pressed = [fret for _, fret in frets.values() if fret]
            if not pressed or max(pressed) - min(pressed) <= SPAN:
                is_reached = True
                yield frets
    if not is_reached:
        yield from _frets(rest, first)
