"""Chooses the names of pitches that suit a key signature.

Names are numbered along the line of fifths: F is -1, C is 0, G is 1. The seven notes of a key with
n sharps (or -n flats) are n - 1 to n + 5. Each other pitch has two names; the one that is nearer to
the mean of the notes around it is used. This mean is moved towards sharps if a note one semitone
higher follows soon, and towards flats if a note one semitone lower does. In a minor key it is one
fifth higher: A minor has D sharp more often than E flat.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64
from service.score.keys import Sections
from service.score.quantise import QuantisedNote
from service.score.voices import index_at


class Name(NamedTuple):
    """Name of a pitch. ``alter``: sharps, or flats if negative. ``octave``: 4 for middle C."""

    step: str
    alter: int
    octave: int


Names = Mapping[tuple[Fraction, int], Name]  # by onset and pitch of the note
_STEPS = "FCGDAEB"  # from -1 up
_SINGLE = range(-8, 13)  # F flat to B sharp: names without double accidentals
_FOLLOWING = 4  # number of onsets after a note that are searched for a note one semitone away
_AROUND = 12  # number of onsets before and after a note whose names are averaged
# Change of the mean if a note one semitone away follows. Chosen on 37 movements from Haydn to
# Joplin. With a change of 1.67, some 6 % of their chromatic notes are not named as in the score.
_TOWARDS = 1.7
_MEAN = 2.0  # mean of the seven names of a key, relative to the signature


def name_of(pitch: int, fifths: int, direction: int = 0, mean: float = _MEAN) -> Name:
    """Return the name of a MIDI pitch.

    Args:
        fifths: sharps of the key signature, or flats if negative.
        direction: 1 if a note one semitone higher follows, -1 if one semitone lower, else 0.
        mean: mean name of the notes around it, relative to the signature.
    """
    lowest = math.ceil(mean + _TOWARDS * direction - 5.5)
    lowest = min(max(lowest, -6), -1)  # all ranges contain the names of the key
    position = (7 * pitch - fifths - lowest) % 12 + lowest + fifths
    if position not in _SINGLE:
        position += 12 if position < 0 else -12
    alter, step = divmod(position + 1, 7)
    return Name(_STEPS[step], alter, (pitch - alter) // 12 - 1)


def mean_name(weight: F64 | I64, fifths: int) -> float:
    """Return the weighted mean of the names of the pitch classes, relative to the signature.

    Args:
        weight: [12], by pitch class.
        fifths: sharps of the key signature, or flats if negative.
    """
    names = (7 * np.arange(12) - fifths + 2) % 12 - 2
    weight = weight * (names <= 6)  # the names of the others are ambiguous
    return float(weight @ names / weight.sum()) if weight.any() else _MEAN


def spelled(notes: Sequence[QuantisedNote], keys: Sections, minor: bool = False) -> Names:
    """Return the names of the notes, which suit the key signatures of their sections.

    Args:
        minor: True if the piece is in a minor key.
    """
    pitches: dict[Fraction, set[int]] = {}
    for note in notes:
        pitches.setdefault(note.onset, set()).add(note.pitch)
    onsets = sorted(pitches)

    def direction(note: QuantisedNote) -> int:
        following = bisect_right(onsets, note.onset)
        for onset in onsets[following : following + _FOLLOWING]:
            is_raised, is_lowered = (note.pitch + step in pitches[onset] for step in (1, -1))
            if is_raised != is_lowered:
                return 1 if is_raised else -1
        return 0

    @cache
    def mean_around(onset: Fraction, fifths: int) -> float:
        at = bisect_left(onsets, onset)
        around = onsets[max(0, at - _AROUND) : at + _AROUND + 1]
        classes = [pitch % 12 for onset in around for pitch in pitches[onset]]
        return mean_name(np.bincount(classes, minlength=12), fifths)

    def name(note: QuantisedNote) -> Name:
        fifths = keys[index_at(keys, note.onset)][1]
        mean = mean_around(note.onset, fifths) + minor
        return name_of(note.pitch, fifths, direction(note), mean)

    return {(note.onset, note.pitch): name(note) for note in notes}
