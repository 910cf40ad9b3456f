"""Finds the chord symbols of a performance, such as C, Am7 and F/A.

Each beat has a bass note, if any, and a weight for each pitch class. A dynamic program finds the
sequence of chords with the lowest total cost. A change of chord costs more within a bar than at its
start, so that passing notes do not change the symbol.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64, Beats, smoothest
from service.score.spelling import Name, mean_name, name_of

_ALTERATIONS = ("", "#", "b")  # suffix of a name, indexed by the number of sharps; -1 is a flat
QUALITIES = {  # suffix of the name: semitones above the root, and the cost of this quality
    "": ((0, 4, 7), 0.0),
    "m": ((0, 3, 7), 0.0),
    "7": ((0, 4, 7, 10), 0.5),
    "m7": ((0, 3, 7, 10), 0.5),
    "maj7": ((0, 4, 7, 11), 0.8),
    "dim": ((0, 3, 6), 1.0),
    "m7b5": ((0, 3, 6, 10), 0.6),
    "dim7": ((0, 3, 6, 9), 1.0),
    "aug": ((0, 4, 8), 1.5),
    "sus4": ((0, 5, 7), 2.0),
    "sus2": ((0, 2, 7), 2.5),
}
_TONES = (1.3, 1.0, 0.9, 0.9)  # relative weight of root, third, fifth and seventh in a chord
_OTHER = 0.12  # relative weight of each other pitch class
_ONSET, _MAX_WEIGHT = 0.15, 1.3  # in beats: added to a note's length at its onset; maximum weight
_EARLY = 0.12  # in beats: starts and ends of notes this close to a beat move to the beat
_HELD = 16  # number of beats after which a held note no longer counts
_MIN_BASS = 0.25  # in beats, including _ONSET: notes that sound for less in a beat are not its bass
_BASS = (0.0, 0.7, 0.7, 1.0, 1.6)  # cost if the bass is the root, third, fifth, seventh or another
_CHROMATIC = 0.35  # cost of each tone outside of the key
_CHANGE = (0.8, 1.8, 3.0)  # cost of a change: at the start of a bar, at its middle, elsewhere
_NEVER = 1e4
_AROUND = 8  # number of beats before and after a chord whose notes influence its name
_TOGETHER = 0.1  # in beats: notes with onsets within this time start together
_MAX_ROOTS = 0.25  # maximum share of an inverted chord's beats in which the bass is its root
# Minimum share of beats with three pitch classes, and minimum mean number of notes.
_MIN_SHARE, _MIN_VOICES = 0.25, 1.6
_SOUNDS = 0.2  # minimum weight, in beats including _ONSET, of a pitch class that counts
_SCALE = (0, 2, 4, 5, 7, 9, 11)
_RAISED = (6, 8)  # sixth and seventh of a minor key, from the tonic of its relative major
_STRETCH = 4096  # number of beats that are decoded at once, which bounds the memory
_STATES = list(product(range(12), QUALITIES))


class ChordSymbol(NamedTuple):
    """A chord that starts at ``beat``. ``bass``: the bass of an inverted chord. The octaves of the
    names have no meaning."""

    beat: int
    root: Name
    quality: str = ""
    bass: Name | None = None

    @property
    def name(self) -> str:
        """Symbol as text, such as "Am7/G"."""
        return _text(self.root) + self.quality + (f"/{_text(self.bass)}" if self.bass else "")


def _text(name: Name) -> str:
    return f"{name.step}{_ALTERATIONS[name.alter]}"


def find_chords(
    notes: F64, beats: Beats, fifths: int, minor: bool, enabled: bool | None = None
) -> list[ChordSymbol]:
    """Return the chords at the beats where they change.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
        fifths: sharps of the key signature, or flats if negative.
        minor: True if the key is minor.
        enabled: True for chords of any music; False for no chords; None for chords only if several
            notes often sound at once.
    """
    if not len(notes) or enabled is False:
        return []
    begin, end = (_snap(beats.position(notes[:, column])) for column in (0, 1))
    pitch = notes[:, 2].astype(int)
    beat, weight, bass, voices = _weigh(begin, end, pitch)
    if not len(beat):  # all notes have the length 0
        return []
    if not enabled:
        has_triads = ((weight > _SOUNDS).sum(1) >= 3).mean() >= _MIN_SHARE
        if voices.mean() < _MIN_VOICES or not has_triads:
            return []
        # Until the first bar in which two notes start together, the melody gets no symbols.
        bars = beats.bars(int(beat[0]), int(beat[-1]) + 1)
        together = (np.diff(begin) < _TOGETHER) & (np.diff(pitch) % 12 != 0)
        first_together = begin[together.argmax()]  # the first note if no notes start together
        first = min(beat[-1], first_together)
        start = next(int(bar_start) for bar_start, count in bars if bar_start + count > first)
        beat, weight, bass = beat[beat >= start], weight[beat >= start], bass[beat >= start]
    path: list[int] = []
    change = _change_costs(beat, beats)
    change[~np.isin(beat, np.floor(begin))] = _NEVER  # no note starts in these beats
    for start in range(0, len(beat), _STRETCH):
        part = slice(start, start + _STRETCH)
        cost = _costs(weight[part], bass[part], fifths, minor)
        path += smoothest(cost, change[part]).tolist()
    symbols, starts = [], [0, *(np.flatnonzero(np.diff(path)) + 1).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(path)], strict=True):
        root, quality = _STATES[path[start]]
        basses = bass[start:stop]
        first_bass = int(basses[basses.any(1).argmax()].argmax())  # 0 if no beat has a bass
        is_inner = (first_bass - root) % 12 in QUALITIES[quality][0][1:]
        is_inverted = basses.any() and is_inner and basses[:, root].mean() < _MAX_ROOTS
        around = weight[max(0, start - _AROUND) : stop + _AROUND].sum(0)
        mean = mean_name(around, fifths) + minor
        slash = name_of(first_bass, fifths, mean=mean) if is_inverted else None
        name = name_of(root, fifths, mean=mean)
        symbols.append(ChordSymbol(int(beat[start]), name, quality, slash))
    return symbols


def _snap(position: F64) -> F64:
    nearest = np.round(position)
    return np.where(np.abs(position - nearest) < _EARLY, nearest, position)


def _weigh(begin: F64, end: F64, pitch: I64) -> tuple[I64, F64, F64, F64]:
    """Return four arrays for the n beats in which notes sound:

    * the index of each beat, [n];
    * the weight of each pitch class, [n, 12]: its duration with a bonus for onsets;
    * 1 at the pitch class of the bass, else 0, [n, 12];
    * the mean number of notes from the first onset to the last offset in the beat, [n].
    """
    number = np.floor(begin)[:, None] + np.arange(_HELD)
    start = np.maximum(begin[:, None], number)
    stop = np.minimum(end[:, None], number + 1)
    note, column = np.nonzero(stop > start)
    start, stop = start[note, column], stop[note, column]
    duration = stop - start
    beat, place = np.unique(number[note, column].astype(int), return_inverse=True)
    first, last = np.full(len(beat), np.inf), np.full(len(beat), -np.inf)
    np.minimum.at(first, place, start)
    np.maximum.at(last, place, stop)
    voices = np.bincount(place, duration) / (last - first)
    emphasis = duration + _ONSET * (column == 0)  # a note starts in its first column
    weight, bass = np.zeros((len(beat), 12)), np.zeros((len(beat), 12))
    np.add.at(weight, (place, pitch[note] % 12), emphasis)
    lowest = np.full(len(beat), 128)
    is_long = emphasis > _MIN_BASS
    np.minimum.at(lowest, place[is_long], pitch[note][is_long])
    with_bass = np.flatnonzero(lowest < 128)
    bass[with_bass, lowest[with_bass] % 12] = 1
    return beat, np.minimum(weight, _MAX_WEIGHT), bass, voices


def _change_costs(beat: I64, beats: Beats) -> F64:
    """Return the cost of a new chord at each of these beats."""
    bars = beats.bars(int(beat[0]), int(beat[-1]) + 1)
    starts = np.array([int(start) for start, _ in bars])
    bar = np.searchsorted(starts, beat, side="right") - 1
    size = np.array([count for _, count in bars])[bar]
    place = beat - starts[bar]
    return np.select([place == 0, 2 * place == size], _CHANGE[:2], _CHANGE[2])


def _costs(weight: F64, bass: F64, fifths: int, minor: bool) -> F64:
    """Return the cost of each chord at each beat in nats, [beats, chords]."""
    tonic = 7 * fifths % 12
    scale = {(tonic + step) % 12 for step in (*_SCALE, *(_RAISED if minor else ()))}
    share, low = np.full((len(_STATES), 12), _OTHER), np.full((len(_STATES), 12), _BASS[-1])
    price = np.zeros(len(_STATES))
    for state, (root, quality) in enumerate(_STATES):
        tones, rare = QUALITIES[quality]
        pitch_classes = [(root + tone) % 12 for tone in tones]
        share[state, pitch_classes] = _TONES[: len(tones)]
        low[state, pitch_classes] = _BASS[: len(tones)]
        price[state] = rare + _CHROMATIC * sum(pc not in scale for pc in pitch_classes)
    log_share = np.log(share / share.sum(1, keepdims=True))
    return price - weight @ log_share.T + bass @ low.T
