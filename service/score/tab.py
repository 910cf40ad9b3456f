"""Tablature: on which string and fret of a guitar each note is played."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from service.score.staves import Chord

OPEN = (64, 59, 55, 50, 45, 40)  # MIDI pitches of the strings, the highest first
FRETS = 19
_SPAN = 4  # frets that a hand reaches
# Costs: a fret's way, height and reach; a note.
_MOVE, _HIGH, _STRETCH, _LEFT_OUT = 1.0, 0.15, 0.5, 50.0
_KEPT = 16  # rows of hands that are followed at once

Place = tuple[int, int]  # string from 1, the highest, and fret


def tab_line(notes: Sequence[Chord]) -> list[Chord]:
    """One line of chords with their places: all that begins together, until the next. The cheapest
    row of hand positions (dynamic programme). What no hand reaches is left out."""
    plain = sorted((n for n in notes if not n.grace), key=lambda n: n.onset)
    rows = [(onset, list(group)) for onset, group in groupby(plain, key=lambda n: n.onset)]
    # Cost, position of the hand, and the places so far, the latest first.
    paths: list[tuple[float, float, Any]] = [(0.0, 2.0, ())]
    names = []
    for _, row in rows:
        named = {p: name for n in row for p, name in zip(n.pitches, n.names, strict=True)}
        names.append(named)
        following = []
        for places in _hands(sorted(named, reverse=True)):
            pressed = [fret for _, fret in places.values() if fret]
            price = _LEFT_OUT * (len(named) - len(places)) + _HIGH * sum(pressed)
            if pressed:
                price += _STRETCH * (max(pressed) - min(pressed))
            for cost, at, before in paths:
                now = float(min(pressed)) if pressed else at
                following.append((cost + price + _MOVE * abs(now - at), now, (places, before)))
        following.sort(key=lambda path: path[0])
        paths = following[:_KEPT]
    chosen: list[dict[int, Place]] = []
    trail = paths[0][2]
    while trail:
        places, trail = trail
        chosen.append(places)
    out = []
    for number, ((onset, row), named, places) in enumerate(
        zip(rows, names, reversed(chosen), strict=True)
    ):
        last = max(n.onset + n.length for n in row)
        end = min(last, rows[number + 1][0]) if number + 1 < len(rows) else last
        pitches = tuple(sorted(places))
        if pitches and end > onset:
            where = tuple(places[p] for p in pitches)
            out.append(
                Chord(onset, end - onset, tuple(named[p] for p in pitches), pitches, False, where)
            )
    return out


def _hands(pitches: Sequence[int], first: int = 0) -> Iterator[dict[int, Place]]:
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
        for others in _hands(rest, string + 1):
            pressed = [f for f in (fret, *(f for _, f in others.values())) if f]
            if not pressed or max(pressed) - min(pressed) <= _SPAN:
                reached = True
                yield {pitch: (string + 1, fret), **others}
    if not reached:
        yield from _hands(rest, first)
