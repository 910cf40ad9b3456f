"""Notes of a performance on the grid of its beats."""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.score.beat_tracker import chord_numbers
from service.score.beats import F64, I64, Beats

GRIDS = {  # parts of a beat, and what using them costs; a beat takes one of them
    2: ((2, 0.0), (4, 0.02), (3, 0.05), (8, 0.09), (6, 0.10)),
    3: ((3, 0.0), (6, 0.03), (2, 0.05), (12, 0.10)),
}
PLAIN_GRIDS = GRIDS[2][:2]
LONGEST_GRACE_S = 0.09
LEGATO = 0.6  # a note that sounds for this share of the time to the next lasts until it


class QuantisedNote(NamedTuple):
    """A note in the score: a MIDI pitch; ``onset`` and ``length`` in beats, from the first beat."""

    pitch: int
    onset: Fraction
    length: Fraction
    grace: bool = False


def quantise_notes(
    onset_s: F64, offset_s: F64, pitch: I64, beats: Beats, plain: bool = False
) -> list[QuantisedNote]:
    """The notes, in order of onset, on the beats' grid.

    Each beat takes the grid with the least error for its chords, finer ones at a price. A note much
    shorter than any of these, a step or two from the one that follows at once, is a grace note:
    it stands before that one and takes no time.

    Args:
        plain: write halves and quarters of a beat alone, for free rhythm.
    """
    if not len(onset_s):
        return []
    number = chord_numbers(onset_s)
    starts = np.searchsorted(number, np.arange(number[-1] + 1))
    counts = np.diff(np.append(starts, len(onset_s)))
    heads = np.add.reduceat(onset_s, starts) / counts
    grace = _graces(heads, starts, counts, offset_s, pitch)
    position = beats.position(heads)
    floors = np.floor(position + 1 / 16).astype(int)
    placed: dict[int, Fraction] = {}
    for beat in np.unique(floors[~grace]):
        own = np.flatnonzero(~grace & (floors == beat))
        grids = PLAIN_GRIDS if plain else GRIDS[beats.subdivision]
        on_grid = _on_grid(position[own] - beat, grids)
        placed |= {int(chord): int(beat) + at for chord, at in zip(own, on_grid, strict=True)}
    for chord in reversed(np.flatnonzero(grace)):
        placed[int(chord)] = placed[int(chord) + 1]
    ends = beats.position(offset_s)
    out = []
    for note, chord in enumerate(map(int, number)):
        onset = placed[chord]
        later = (placed[c] for c in range(chord + 1, len(heads)) if placed[c] > onset)
        length = _length(onset, float(ends[note]), next(later, None), beats.subdivision)
        out.append(QuantisedNote(int(pitch[note]), onset, length, bool(grace[chord])))
    return out


def _graces(heads: F64, starts: I64, counts: I64, offset_s: F64, pitch: I64) -> NDArray[np.bool_]:
    """Which chords are grace notes; the last is none."""
    grace = np.zeros(len(heads), np.bool_)
    for chord in range(len(heads) - 1):
        note, soon = starts[chord], heads[chord + 1] - heads[chord] < LONGEST_GRACE_S
        if counts[chord] > 1 or not soon or offset_s[note] - heads[chord] > 2 * LONGEST_GRACE_S:
            continue
        after = pitch[starts[chord + 1] : starts[chord + 1] + counts[chord + 1]]
        alone = chord == 0 or heads[chord] - heads[chord - 1] > LONGEST_GRACE_S
        grace[chord] = alone and 0 < np.abs(after - pitch[note]).min() <= 2
    return grace


def _on_grid(at: F64, grids: Sequence[tuple[int, float]]) -> list[Fraction]:
    """Places in a beat, of chords at 0 to 1."""
    tried = []
    for parts, price in grids:
        nearest = np.abs(at[:, None] - np.arange(parts + 1) / parts).argmin(1)
        error = float(np.abs(at - nearest / parts).mean())
        shared = len(nearest) - len(np.unique(nearest))  # chords that would fall together
        tried.append((error + price + 0.15 * shared, parts, nearest))
    _, parts, nearest = min(tried, key=lambda grid: grid[0])
    return [Fraction(int(place), parts) for place in nearest]


def _length(onset: Fraction, end: float, following: Fraction | None, subdivision: int) -> Fraction:
    sounding = end - float(onset)
    step = least = Fraction(1, 4 if subdivision == 2 else 6)
    if following is not None:
        room = following - onset
        if LEGATO * float(room) <= sounding <= float(room) + float(step):
            return room
        least = min(step, room)
    return max(least, round(sounding / float(step)) * step)
