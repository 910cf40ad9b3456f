"""Notes of a performance on the grid of its beats."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from service.score.beats import Beats
from service.score.evidence import chord_numbers

GRIDS = {  # places within a beat, and what using them costs; a beat takes one of them
    2: (
        ((Fraction(0), Fraction(1, 2)), 0.0),
        (tuple(Fraction(k, 4) for k in range(4)), 0.02),
        (tuple(Fraction(k, 3) for k in range(3)), 0.05),
        (tuple(Fraction(k, 8) for k in range(8)), 0.09),
        (tuple(Fraction(k, 6) for k in range(6)), 0.10),
    ),
    3: (
        (tuple(Fraction(k, 3) for k in range(3)), 0.0),
        (tuple(Fraction(k, 6) for k in range(6)), 0.03),
        ((Fraction(0), Fraction(1, 2)), 0.05),
        (tuple(Fraction(k, 12) for k in range(12)), 0.10),
    ),
}
LONGEST_GRACE_S = 0.09
LEGATO = 0.6  # a note that sounds for this share of the time to the next lasts until it


@dataclass(frozen=True)
class Placed:
    """A note in the score: ``onset`` and ``length`` in beats, from the first beat."""

    index: int
    onset: Fraction
    length: Fraction
    grace: bool = False


def place_notes(
    onset_s: NDArray[np.float64],
    offset_s: NDArray[np.float64],
    pitch: NDArray[np.int64],
    beats: Beats,
) -> list[Placed]:
    """The notes, in order of onset, on the beats' grid.

    Each beat takes the grid with the least error for its chords, finer ones at a price. A note much
    shorter than any of these, a step or two from the one that follows at once, is a grace note:
    it stands before that one and takes no time.
    """
    if not len(onset_s):
        return []
    number = chord_numbers(onset_s)
    starts = np.searchsorted(number, np.arange(number[-1] + 1))
    counts = np.diff(np.append(starts, len(onset_s)))
    heads = np.add.reduceat(onset_s, starts) / counts
    grace = _graces(heads, starts, counts, offset_s, pitch)
    position = beats.position(heads)
    placed: dict[int, Fraction] = {}
    main = [chord for chord in range(len(heads)) if not grace[chord]]
    floors = np.floor(position + 1 / 16).astype(int)
    for beat in sorted({int(floors[chord]) for chord in main}):
        own = [chord for chord in main if floors[chord] == beat]
        at = position[own] - beat
        placed |= dict(zip(own, _on_grid(at, beat, beats.subdivision), strict=True))
    following = None
    for chord in reversed(range(len(heads))):
        if grace[chord] and following is not None:
            placed[chord] = placed[following]
        elif not grace[chord]:
            following = chord
    ends = beats.position(offset_s)
    out = []
    for index, chord in enumerate(number):
        onset = placed[int(chord)]
        later = (placed[c] for c in range(int(chord) + 1, len(heads)) if placed[c] > onset)
        length = _length(onset, float(ends[index]), next(later, None), beats.subdivision)
        out.append(Placed(index, onset, length, bool(grace[chord])))
    return out


def _graces(
    heads: NDArray[np.float64],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    offset_s: NDArray[np.float64],
    pitch: NDArray[np.int64],
) -> NDArray[np.bool_]:
    grace = np.zeros(len(heads), np.bool_)
    for chord in range(len(heads) - 1):
        note, soon = starts[chord], heads[chord + 1] - heads[chord] < LONGEST_GRACE_S
        if counts[chord] > 1 or not soon or offset_s[note] - heads[chord] > 2 * LONGEST_GRACE_S:
            continue
        after = pitch[starts[chord + 1] : starts[chord + 1] + counts[chord + 1]]
        alone = chord == 0 or heads[chord] - heads[chord - 1] > LONGEST_GRACE_S
        grace[chord] = alone and 0 < np.abs(after - pitch[note]).min() <= 2
    return grace


def _on_grid(at: NDArray[np.float64], beat: int, subdivision: int) -> list[Fraction]:
    best: tuple[float, list[Fraction]] | None = None
    for grid, price in GRIDS[subdivision]:
        places = np.array([float(place) for place in (*grid, Fraction(1))])
        nearest = np.abs(at[:, None] - places).argmin(1)
        error = float(np.abs(at - places[nearest]).mean())
        shared = len(nearest) - len(set(nearest.tolist()))  # chords that would fall together
        cost = error + price + 0.15 * shared
        if best is None or cost < best[0]:
            best = cost, [beat + (*grid, Fraction(1))[k] for k in nearest]
    assert best is not None
    return best[1]


def _length(onset: Fraction, end: float, following: Fraction | None, subdivision: int) -> Fraction:
    sounding = end - float(onset)
    step = Fraction(1, 4 if subdivision == 2 else 6)
    if following is not None:
        room = following - onset
        if LEGATO * float(room) <= sounding <= float(room) + float(step):
            return room
    return max(
        step if following is None else min(step, following - onset),
        round(sounding / float(step)) * step,
    )
