"""Finds the key of a piece, and the key signatures of its sections."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby, product
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64, smoothest
from service.score.quantise import QuantisedNote
from service.score.voices import Bars, index_at

# Key profiles of Albrecht and Shanahan (2013): shares of the pitch classes, from the tonic up.
MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)
MAJOR_KEYS = ("Gb", "Db", "Ab", "Eb", "Bb", "F", "C", "G", "D", "A", "E", "B")
MINOR_KEYS = ("Ebm", "Bbm", "Fm", "Cm", "Gm", "Dm", "Am", "Em", "Bm", "F#m", "C#m", "G#m")
_SHORTEST_S, _LONGEST_S = 0.05, 1.0  # limits of a note's length, so that a held bass counts less
_OPENING_S, _LATER = 10.0, 0.2  # time constant of a note's weight; weight of late notes
_ACCIDENTALS = 1.5  # loss in correlation if all notes are outside of the signature
_FIRST_BASS, _LAST_BASS = 0.06, 0.03  # gain if the tonic is the bass of the first or last chord
_TOGETHER_S = 0.05  # notes with onsets within this time are one chord
MIN_SECTION = 8  # minimum number of bars of a section with its own key signature
_CHANGE = 20.0  # cost of a change of the key signature
_LIKELY, _OUTSIDE = 2.0, 8.0  # weights of a bar's log likelihood and its share of chromatic notes
_FULL = 2.0  # total length of the notes, in beats, above which a bar has its full weight
_LONGEST = 2.0  # maximum length of a note that counts, in beats
_NEVER = 1e6

Sections = list[tuple[Fraction, int]]  # first beat and key signature, in fifths


class Key(NamedTuple):
    """A key. ``fifths``, from -6 to 5, is the number of sharps, or of flats if negative."""

    fifths: int
    minor: bool

    @property
    def name(self) -> str:
        """Name as in MIDI's key signature, such as "Eb" or "F#m"."""
        return (MINOR_KEYS if self.minor else MAJOR_KEYS)[self.fifths + 6]


def key_of(notes: F64) -> Key:
    """Return the key of a piece.

    Pieces begin in their key and soon modulate, so early notes count more. The key's profile
    correlates with the pitch classes, its signature needs few accidentals, and the bass of the
    first and of the last chord is often its tonic.

    Args:
        notes: [notes, 3 or more] onset and offset in s, MIDI pitch; onsets ascend.
    """
    if not len(notes):
        return Key(0, minor=False)
    onset_s, offset_s = notes[:, 0], notes[:, 1]
    pitch = notes[:, 2].astype(int)
    early = np.exp((onset_s[0] - onset_s) / _OPENING_S) + _LATER
    length_s = np.clip(offset_s - onset_s, _SHORTEST_S, _LONGEST_S)
    weight = np.bincount(pitch % 12, length_s * early, 12).astype(float)
    deviation = _centred(weight)
    gain = np.zeros(12)
    gain[pitch[onset_s <= onset_s[0] + _TOGETHER_S].min() % 12] += _FIRST_BASS
    gain[pitch[onset_s >= onset_s[-1] - _TOGETHER_S].min() % 12] += _LAST_BASS

    def fit(tonic: int, minor: bool) -> float:
        outside = 1 - weight[_scale(_fifths(tonic, minor))].sum() / weight.sum()
        profile = np.roll(_centred(MINOR if minor else MAJOR), tonic)
        return float((profile * deviation).sum() + gain[tonic] - _ACCIDENTALS * outside)

    tonic, minor = max(product(range(12), (False, True)), key=lambda key: fit(*key))
    return Key(_fifths(tonic, minor), minor)


def _centred(shares: Sequence[float] | F64) -> F64:
    """Return deviations from the mean, scaled to a norm of 1."""
    values = np.array(shares, float)
    deviation = values - values.mean()
    return np.asarray(deviation / (np.linalg.norm(deviation) + 1e-9))


def _fifths(tonic: int, minor: bool) -> int:
    major = (tonic + 3) % 12 if minor else tonic
    return (major * 7 + 6) % 12 - 6


def _scale(fifths: int) -> I64:
    """Return the pitch classes of the seven notes in a key signature."""
    return (7 * np.arange(fifths - 1, fifths + 6)) % 12


def key_sections(notes: Iterable[QuantisedNote], bars: Bars, key: Key) -> Sections:
    """Return the sections that have their own key signature. The first starts at the first bar.

    A section has at least ``MIN_SECTION`` bars, including empty bars at its end. The key of the
    dominant does not count as another key, because composers do not print its signature.

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
            outside = share.sum(1) - share[:, _scale(fifths)].sum(1)
            price = _OUTSIDE * outside - _LIKELY * share @ np.log(np.roll(profile, tonic))
            cost[:, fifths + 6] = np.minimum(cost[:, fifths + 6], price)
    cost[:, (key.fifths + 7) % 12] = _NEVER
    column = smoothest(cost, _CHANGE)
    for bar in range(1, len(bars)):
        if not total[bar]:  # the key changes after empty bars, not before them
            column[bar] = column[bar - 1]
    _merge_short(column, cost)
    runs = [next(run) for _, run in groupby(range(len(bars)), key=column.__getitem__)]
    if len(runs) == 1:
        return [(bars[0][0], key.fifths)]
    return [(bars[bar][0], int(column[bar]) - 6) for bar in runs]


def _merge_short(column: I64, cost: F64) -> None:
    """Join each run shorter than ``MIN_SECTION`` with the neighbour whose key costs less."""
    while True:
        edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
        lengths = np.diff(edges)
        shortest = int(lengths.argmin())
        if len(lengths) == 1 or lengths[shortest] >= MIN_SECTION:
            return
        run = slice(edges[shortest], edges[shortest + 1])
        neighbours = [bar for bar in (run.start - 1, run.stop) if 0 <= bar < len(column)]
        column[run] = min((column[bar] for bar in neighbours), key=lambda c: cost[run, c].sum())
