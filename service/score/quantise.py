"""Quantises the notes of a performance to the grid of its beats."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.score.beat_tracker import chord_numbers
from service.score.beats import F64, I64, Beats, smoothest

GRIDS = {  # by subdivision: number of parts of a beat, and the cost in nats of a beat that needs it
    2: {2: 0.0, 4: 1.0, 3: 1.0, 6: 4.0, 8: 4.0},
    3: {3: 0.0, 6: 1.5, 2: 3.0, 12: 5.0},
}
# The finest grids are used only if at least this share of the beats needs them, or if coarser grids
# would merge chords of the beat.
_FINEST, _MIN_SHARE = (8, 12), 0.25
_SIGMA_S, _MAX_ERROR = 0.03, 3.0  # standard deviation of onsets; maximum error, in sigmas
_SWITCH = 0.5  # cost of a change between numbers of parts with and without the factor three
_MERGED = 1.0  # cost of two chords at one position of the grid
_EARLY = 0.1  # in beats: an onset at most this much before a beat belongs to it
MAX_GRACE_S = 0.09  # maximum time from a grace note to the next chord
_STEP = 24  # notes end at multiples of 1 / _STEP beat


class QuantisedNote(NamedTuple):
    """A note in the score. ``pitch`` is a MIDI pitch. ``onset`` counts beats from the first beat.
    ``length`` is the length of the sound in beats. ``grace`` is True for a grace note."""

    pitch: int
    onset: Fraction
    length: Fraction
    grace: bool = False


def quantise_notes(
    onset_s: F64, offset_s: F64, pitch: I64, beats: Beats, steady: bool = True
) -> list[QuantisedNote]:
    """Return the notes with their onsets on the grid of the beats. ``onset_s`` must ascend.

    Each beat has one grid. The grids of all beats are chosen together, because neighbouring beats
    often have the same divisions. A short note is a grace note if a note one or two semitones away
    follows at once. A grace note has no duration in the score.

    Args:
        steady: False for free rhythm, in which the grid divides every beat into eight parts.
    """
    if not len(onset_s):
        return []
    number = chord_numbers(onset_s)
    starts = np.searchsorted(number, np.arange(number[-1] + 1))
    counts = np.diff(np.append(starts, len(onset_s)))
    heads = np.add.reduceat(onset_s, starts) / counts
    grace = _graces(heads, starts, counts, offset_s, pitch)
    position = beats.position(heads)
    chords: dict[int, list[int]] = {}  # by beat
    for chord in np.flatnonzero(~grace).tolist():
        chords.setdefault(int(np.floor(position[chord] + _EARLY)), []).append(chord)
    numbers = np.array(list(chords))
    sigma = _SIGMA_S / (beats.time(numbers + 1.0) - beats.time(numbers))
    places = [(position[members] - beat).tolist() for beat, members in chords.items()]
    grids = GRIDS[beats.subdivision]
    parts = _most_likely(places, sigma.tolist(), grids) if steady else np.full(len(numbers), 8)
    if steady and np.isin(parts, _FINEST).mean() < _MIN_SHARE:
        grids = {n: cost for n, cost in grids.items() if n not in _FINEST}
        coarse = _most_likely(places, sigma.tolist(), grids)
        merges = [
            len(set(_steps(in_beat, n))) < len(in_beat)
            for in_beat, n in zip(places, coarse.tolist(), strict=True)
        ]
        parts = np.where(merges, parts, coarse)  # a run of fast notes stays a run
    placed: dict[int, Fraction] = {}
    for (beat, members), in_beat, n in zip(chords.items(), places, parts.tolist(), strict=True):
        for chord, step in zip(members, _steps(in_beat, n), strict=True):
            placed[chord] = beat + Fraction(step, n)
    for chord in reversed(np.flatnonzero(grace).tolist()):
        placed[chord] = placed[chord + 1]
    ends = np.round(beats.position(offset_s) * _STEP).astype(int).tolist()
    return [
        QuantisedNote(
            int(pitch[note]),
            placed[chord],
            max(Fraction(1, _STEP), Fraction(ends[note], _STEP) - placed[chord]),
            bool(grace[chord]),
        )
        for note, chord in enumerate(number.tolist())
    ]


def _steps(places: Sequence[float], n: int) -> list[int]:
    """Return the nearest of ``n`` steps of the beat for each position in it, but at least 0."""
    return [max(0, round(place * n)) for place in places]


def _graces(heads: F64, starts: I64, counts: I64, offset_s: F64, pitch: I64) -> NDArray[np.bool_]:
    """Return True for each chord that is a grace note. The last chord is never a grace note."""
    grace = np.zeros(len(heads), np.bool_)
    gaps_s = np.diff(heads, prepend=-np.inf, append=np.inf)  # before each chord
    for chord in range(len(heads) - 1):
        note, gap_s = starts[chord], gaps_s[chord + 1]
        if counts[chord] > 1 or offset_s[note] - heads[chord] > 2 * MAX_GRACE_S:
            continue
        after = pitch[starts[chord + 1] : starts[chord + 1] + counts[chord + 1]]
        alone = min(gaps_s[chord], gaps_s[chord + 2]) > max(MAX_GRACE_S, 2 * gap_s)
        grace[chord] = alone and gap_s < MAX_GRACE_S and 0 < np.abs(after - pitch[note]).min() <= 2
    return grace


def _most_likely(
    places: Sequence[Sequence[float]], sigma: Sequence[float], grids: Mapping[int, float]
) -> I64:
    """Return the number of parts of each beat. A change between a number that is divisible by three
    and one that is not has a cost (``_SWITCH``).

    Args:
        places: positions of the chords in each beat, from -_EARLY to 1 - _EARLY.
        sigma: standard deviation of onsets in each beat, in beats.
    """
    coarsest = min(grids, key=lambda n: grids[n])

    def misfit(at: Sequence[float], deviation: float, n: int) -> float:
        steps = _steps(at, n)
        errors = ((place - step / n) / deviation for place, step in zip(at, steps, strict=True))
        total = sum(0.5 * min(abs(error), _MAX_ERROR) ** 2 for error in errors)
        total += _MERGED * (len(steps) - len(set(steps)))
        is_needed = any(step * coarsest % n for step in steps)  # the coarsest grid lacks a position
        return total + grids[n] * is_needed

    beats = zip(places, sigma, strict=True)
    cost = np.array([[misfit(at, deviation, n) for n in grids] for at, deviation in beats])
    parts = np.array(list(grids))
    families = [np.flatnonzero((parts % 3 == 0) == ternary) for ternary in (False, True)]
    best = np.stack([family[cost[:, family].argmin(1)] for family in families], 1)
    family = smoothest(np.take_along_axis(cost, best, 1), _SWITCH)
    return np.asarray(parts[best[np.arange(len(best)), family]])
