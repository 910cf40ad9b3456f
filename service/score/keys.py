"""Key of a piece, and key signatures of its sections."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64, smoothest
from service.score.quantise import QuantisedNote
from service.score.voices import Bars, index_at

# Profiles of keys by Albrecht and Shanahan (2013): shares of the pitch classes from the tonic up.
MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)
MAJOR_KEYS = ("Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B")
MINOR_KEYS = ("Ebm", "Bbm", "Fm", "Cm", "Gm", "Dm", "Am", "Em", "Bm", "F#m", "C#m", "G#m")
_LONGEST_S = 2.0  # maximum length that counts: a held bass is no stronger evidence than a chord
MIN_SECTION = 8  # bars of a section with its own key signature
_CHANGE = 14.0  # cost of a change of the key signature
_LIKELY, _OUTSIDE = 2.0, 8.0  # weights of a bar's log likelihood and its share of chromatic notes
_FULL = 2.0  # beats of notes in a bar that has this weight; fewer have less
_LONGEST = 2.0  # maximum beats of a note that count
_NEVER = 1e6

Sections = list[tuple[Fraction, int]]  # first beat and key signature, in fifths


class Key(NamedTuple):
    """A key. ``fifths``: sharps of the signature, or flats if negative, from -6 to 5."""

    fifths: int
    minor: bool

    @property
    def name(self) -> str:
        """Name as in MIDI's key signature, such as "Eb" or "F#m"."""
        return (MINOR_KEYS if self.minor else MAJOR_KEYS)[self.fifths + 6]


def key_of(pitch: I64, length_s: F64) -> Key:
    """Return the key whose profile correlates best with the pitch classes, weighted by length."""
    weight = np.bincount(pitch % 12, np.minimum(length_s, _LONGEST_S), 12)
    if not weight.any():
        return Key(0, minor=False)
    _, tonic, minor = max(
        (float(np.corrcoef(np.roll(profile, tonic), weight)[0, 1]), tonic, profile is MINOR)
        for profile in (MAJOR, MINOR)
        for tonic in range(12)
    )
    return Key(_fifths(tonic, minor), minor)


def _fifths(tonic: int, minor: bool) -> int:
    major = (tonic + 3) % 12 if minor else tonic
    return (major * 7 + 6) % 12 - 6


def key_sections(notes: Iterable[QuantisedNote], bars: Bars, key: Key) -> Sections:
    """Return the sections of a piece that have their own key signature, the first at the first bar.

    A section stays in another key for ``MIN_SECTION`` bars or more. The key of the dominant is not
    another key: composers do not print its signature.

    Args:
        key: key of the piece.
    """
    weight = np.zeros((len(bars), 12))
    for note in notes:
        weight[index_at(bars, note.onset), note.pitch % 12] += min(float(note.length), _LONGEST)
    total = weight.sum(1, keepdims=True)
    share = weight / np.maximum(total, 1e-9) * np.minimum(total / _FULL, 1)
    cost = np.full((len(bars), 12), np.inf)  # by fifths from -6 up
    for profile in (MAJOR, MINOR):
        for tonic in range(12):
            fifths = _fifths(tonic, profile is MINOR)
            scale = (7 * np.arange(fifths - 1, fifths + 6)) % 12
            outside = share.sum(1) - share[:, scale].sum(1)
            price = _OUTSIDE * outside - _LIKELY * share @ np.log(np.roll(profile, tonic))
            cost[:, fifths + 6] = np.minimum(cost[:, fifths + 6], price)
    cost[:, (key.fifths + 7) % 12] = _NEVER
    column = smoothest(cost, _CHANGE)
    _merge_short(column, cost)
    for bar in range(1, len(bars)):
        if not total[bar]:  # a key changes after a rest
            column[bar] = column[bar - 1]
    runs = [next(run) for _, run in groupby(range(len(bars)), key=column.__getitem__)]
    if len(runs) == 1:
        return [(bars[0][0], key.fifths)]
    return [(bars[bar][0], int(column[bar]) - 6) for bar in runs]


def _merge_short(column: I64, cost: F64) -> None:
    """Join runs shorter than ``MIN_SECTION`` with the neighbour that costs less."""
    while True:
        edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
        lengths = np.diff(edges)
        shortest = int(lengths.argmin())
        if len(lengths) == 1 or lengths[shortest] >= MIN_SECTION:
            return
        run = slice(edges[shortest], edges[shortest + 1])
        beside = [edge for edge in (run.start - 1, run.stop) if 0 <= edge < len(column)]
        column[run] = min((column[edge] for edge in beside), key=lambda c: cost[run, c].sum())
