"""Bars: how many beats they have, and where they begin.

A bar begins where notes are long, many and low and the harmony changes, and what comes a bar later
is like what is now: the same rhythm, the same harmony, the same accents. A softmax over metres and
first beats says how much each of these counts; it was fitted to scores and performances whose bars
are known (training/RESULTS.md).
"""

import numpy as np
from numpy.typing import NDArray

from service.score.evidence import relative

METRES = (2, 3, 4)
LAGS = (2, 3, 4, 6, 8)  # beats after which music is compared with itself
# Of the features of a beat: longest note and number of notes that begin on it, time until the
# next, whether the bass begins, change of harmony.
FIRST = (0.17, 0.04, -0.03, 0.05, 0.23)
MIDDLE = 0.6  # of that speaks for the third beat of four
ALIKE = {  # by LAGS
    2: (0.15, -0.30, -0.07, -0.27, -0.14),
    3: (-0.20, 0.38, -0.24, 0.19, -0.19),
    4: (0.05, -0.08, 0.31, 0.08, 0.33),
}
USUAL = {2: -0.31, 3: -0.29, 4: 0.60}
_AS_MANY = 40  # beats say no more than these: one bar is like the next
_SURELY = 1e3
_IRREGULAR = 6.0  # cost of a bar that is cut short
_STAYS = 2.0  # what speaks for the metre that has been
_ON = 0.15  # of a beat: onsets as close as this are on it
_LONGEST = 6.0  # beats that count of a note


def find_bars(
    notes: NDArray[np.float64],
    position: NDArray[np.float64],
    beats: int,
    metre: int | None = None,
    first: int | None = None,
    before: int | None = None,
) -> tuple[NDArray[np.int64], int]:
    """The place of each beat in its bar, and the number of beats of most bars.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
        position: [notes, 2] their onsets and offsets in beats.
        metre: if it is known.
        first: a beat that begins a bar, if one is known.
        before: metre of the bars before, which goes on unless much speaks against it.
    """
    features, alike = describe(notes[:, 2], position, beats)
    downs = features @ FIRST
    if first is not None:
        downs[first] += _SURELY
    paths = {m: _path(downs, m) for m in METRES if metre in (None, m)}
    scale = min(1.0, _AS_MANY / beats)
    total = {m: scale * paths[m][1] + alike @ ALIKE[m] + USUAL[m] for m in paths}
    if before is not None:
        total[before] += _STAYS
    best = max(total, key=lambda m: total[m])
    return paths[best][0], best


def _path(downs: NDArray[np.float64], metre: int) -> tuple[NDArray[np.int64], float]:
    """The best places of beats, and their score: bars are whole unless much speaks against it."""
    beats = len(downs)
    scores = np.zeros((beats, metre))
    scores[:, 0] = downs
    if metre == 4:
        scores[:, 2] = MIDDLE * np.where(downs < _SURELY / 2, downs, 0)
    value = scores[0].copy()
    before = np.full(beats, metre - 1)  # the place before each first one
    for beat in range(1, beats):
        cut = int(value.argmax())
        value = np.roll(value, 1)
        if value.max() - _IRREGULAR > value[0]:
            value[0], before[beat] = value.max() - _IRREGULAR, cut
        value += scores[beat]
    places = np.empty(beats, np.int64)
    places[-1] = value.argmax()
    for beat in range(beats - 1, 0, -1):
        places[beat - 1] = places[beat] - 1 if places[beat] else before[beat]
    return places, float(value.max())


def describe(
    pitch: NDArray[np.float64], position: NDArray[np.float64], beats: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features of beats [beats, 5], relative to those around, and likeness after LAGS."""
    onset, offset = position[:, 0], np.minimum(position[:, 1], position[:, 0] + _LONGEST)
    nearest = np.round(onset).astype(int)
    on = (np.abs(onset - nearest) < _ON) & (nearest >= 0) & (nearest < beats)
    longest = np.zeros(beats)
    np.maximum.at(longest, nearest[on], (offset - onset)[on])
    following = np.append(onset, onset[-1:] + 4)[np.searchsorted(onset, np.arange(beats) + _ON)]
    wait = np.clip(following - np.arange(beats), _ON, 4)
    # Each note in each beat that it sounds in.
    begin = np.floor(onset + _ON).astype(int)
    spans = np.maximum(np.floor(offset - 0.1).astype(int) - begin + 1, 1)
    note = np.repeat(np.arange(len(onset)), spans)
    beat = begin[note] + np.arange(len(note)) - np.repeat(np.cumsum(spans) - spans, spans)
    inside = (beat >= 0) & (beat < beats)
    note, beat = note[inside], beat[inside]
    share = np.minimum(offset[note], beat + 1) - np.maximum(onset[note], beat)
    chroma = np.zeros((beats, 12))
    np.add.at(chroma, (beat, pitch[note].astype(int) % 12), np.maximum(share, 0))
    lowest = np.full(beats, np.inf)
    np.minimum.at(lowest, beat, pitch[note])
    bass = np.zeros(beats)
    bass[nearest[on][pitch[on] <= lowest[nearest[on]]]] = 1
    two = chroma + np.append(chroma[1:], chroma[-1:], 0)
    change = np.append(np.zeros(2), 1 - (_unit(two)[2:] * _unit(two)[:-2]).sum(1))[:beats]
    raw = np.log(longest + 0.1), np.log(np.bincount(nearest[on], minlength=beats) + 0.3)
    features = np.stack([relative(f) for f in (*raw, np.log(wait), bass, change)], 1)
    rhythm = np.zeros((beats, 4))
    quarter = np.clip(np.floor((onset - begin) * 4 + 0.5).astype(int), 0, 3)
    held = (begin >= 0) & (begin < beats)
    np.add.at(rhythm, (begin[held], quarter[held]), 1)
    kinds = _unit(np.sqrt(rhythm)), _unit(chroma), features
    return features, np.sum([_likeness(kind) for kind in kinds], axis=0)


def _likeness(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """How like rows are to those LAGS later, beside the mean of these, in standard errors."""
    lags = [lag for lag in LAGS if lag + 2 < len(rows)]
    if not lags:
        return np.zeros(len(LAGS))
    products = [(rows[lag:] * rows[:-lag]).sum(1) for lag in lags]
    means = np.array([product.mean() for product in products])
    error = np.concatenate(products).std() / np.sqrt(len(rows)) + 0.01
    likeness = 2 * np.tanh((means - means.mean()) / error / 2)
    return np.append(likeness, np.zeros(len(LAGS) - len(lags)))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 0.1)
