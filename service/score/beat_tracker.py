"""Detects the beats of a performance from its notes.

Long, low and full chords are more often on beats than between them. A softmax over positions in the
beat predicts the position of each chord from its features. Its weights were fitted to performances
with known beats (training/RESULTS.md).

A dynamic program over tempo and phase finds the best beats. A state consists of the time of a beat,
the time since the beat before it, and the subdivision of this time into two or three parts. A step
from one beat to the next gains the log likelihood of the chords between the two beats. A larger
change of the tempo costs more, so that the beats follow a rubato but do not jump.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64, NO_BEAT_HINTS, BeatHints, Beats

CHORD_S = 0.045  # notes with onsets within this time are one chord
MIN_CHORDS = 8  # minimum number of chords in which beats are detected
PLACES = {  # classes of positions in a beat, by subdivision
    2: ((0.0,), (0.5,), (0.25, 0.75)),
    3: ((0.0,), (1 / 3,), (2 / 3,), (1 / 6, 0.5, 5 / 6)),
}
TYPICAL_S = 0.6  # typical length of a beat
# Rows: downbeat, other beats, the classes of PLACES after the first, elsewhere. Columns: constant,
# log(beat / TYPICAL_S), its square, and the features.
WEIGHTS = {
    2: (
        (-0.59, -1.77, 0.84, 0.22, 0.20, 0.81, -0.04, 0.23),
        (0.58, -1.33, 0.98, 0.27, -0.06, 0.37, 0.08, 0.25),
        (0.77, -0.39, 0.60, 0.22, 0.01, -0.20, 0.03, 0.28),
        (0.65, 1.08, -0.75, -0.37, -0.07, -0.60, 0.26, -0.07),
        (-1.41, 2.41, -1.67, -0.33, -0.08, -0.37, -0.34, -0.68),
    ),
    3: (
        (-0.38, -0.95, 0.80, 0.09, -0.05, 0.76, 0.29, 0.32),
        (0.65, -0.78, -0.08, 0.21, -0.03, 0.52, 0.18, 0.41),
        (1.05, -0.50, -0.95, -0.10, -0.02, -0.29, 0.05, 0.45),
        (1.12, 0.10, -0.03, 0.33, 0.07, -0.14, 0.07, -0.13),
        (0.68, 1.43, 0.11, -0.40, 0.09, -0.66, 0.32, 0.00),
        (-3.12, 0.70, 0.15, -0.12, -0.07, -0.18, -0.92, -1.05),
    ),
}
_LONGEST_GAP_S = 1.5
_AROUND = 24  # number of chords before and after a chord with which it is compared

STEP_S = 0.02  # time step of the dynamic program
LEAD_S = 0.1  # time by which the dynamic program starts before the first chord
SHORTEST_S, LONGEST_S = 0.25, 1.7  # range of beat lengths: 240 to 35 beats per minute
USUAL_RATIO = 1.41  # maximum ratio of beat lengths to the usual length: none is twice as long
_RATIO = 1.045  # ratio of neighbouring beat lengths
_REACH = 5  # maximum change of the beat length from beat to beat, in steps of _RATIO
_SIGMA_S = 0.025  # standard deviation of an onset from its position in the beat
_ELSEWHERE = 0.08  # share of onsets that are at none of the positions
_FLOOR = -4.0  # minimum log probability of a class, so that no single chord decides
_TEMPO_COST = 7.0  # cost of a change of the beat length, per logarithm of the ratio
_TERNARY = 0.7  # cost per second of beats in three parts, whose six positions suit any chord
_SILENT_COST = 1.5  # cost of a beat without a chord
_USUAL_S, _WIDTH, _PRIOR = 0.75, 0.5, 2.5  # log-normal prior of beat lengths; weight per second
_NEVER = -1e8
_PAUSE = round(2 * LONGEST_S / STEP_S)  # number of steps without a chord that precede a pause
_SNAP_S = 0.05  # a beat this close to a chord moves to the chord
# Agreement of phases by chance, its increase if chords are few, and the excess over chance at which
# the confidence is 1.
_CHANCE, _FEW, _CLEAR = 0.2, 3.0, 0.3
_SMOOTHED = 2  # beats before and after a beat with which it is averaged; more if chords are sparse


class Chords(NamedTuple):
    """Chords in order: ``time_s`` [chords]; ``features`` [chords, 5], relative to nearby chords."""

    time_s: F64
    features: F64


def chord_numbers(onset_s: F64, within_s: float = CHORD_S) -> I64:
    """Return the index of the chord to which each note belongs. Onsets ascend."""
    numbers = np.zeros(len(onset_s), np.int64)
    first = number = 0
    for note in range(1, len(onset_s)):
        if onset_s[note] - onset_s[first] > within_s:
            first, number = note, number + 1
        numbers[note] = number
    return numbers


def chords_of(notes: F64) -> Chords | None:
    """Return the chords of notes; None if there are fewer than ``MIN_CHORDS``.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    onset_s, offset_s, pitch, velocity = notes.T
    number = chord_numbers(onset_s)
    count = np.bincount(number).astype(float)
    if (chords := len(count)) < MIN_CHORDS:
        return None
    time_s = np.bincount(number, onset_s * velocity) / np.bincount(number, velocity)
    gap = np.log(np.minimum(np.diff(time_s, append=time_s[-1] + 1), _LONGEST_GAP_S) + 0.05)
    lowest, longest = np.full(chords, np.inf), np.zeros(chords)
    np.minimum.at(lowest, number, pitch)
    np.maximum.at(longest, number, np.minimum(offset_s - onset_s, 2.0))
    begin, end = np.searchsorted(time_s, time_s - 1.2), np.searchsorted(time_s, time_s + 1.2)
    is_bass = [
        low <= np.quantile(lowest[a:b], 0.2) for low, a, b in zip(lowest, begin, end, strict=True)
    ]
    last_gap = np.append(0.0, gap[:-1])
    features = np.log(count), np.array(is_bass, float), np.log(longest + 0.05), gap, last_gap
    return Chords(time_s, np.stack([relative(feature) for feature in features], axis=1))


def class_log_probabilities(features: F64, subdivision: int, beat_s: float) -> F64:
    """Return the log probabilities, [chords, classes], of the chords' positions in a beat of this
    length."""
    weights = np.array(WEIGHTS[subdivision])
    slow = np.log(beat_s / TYPICAL_S)
    logits = weights[:, :3] @ (1.0, slow, slow * slow) + features @ weights[:, 3:].T
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def relative(values: F64) -> F64:
    """Return the deviations from the mean of nearby values, divided by their standard deviation."""
    box = np.ones(2 * _AROUND + 1) / (2 * _AROUND + 1)
    padded = np.pad(values, _AROUND, mode="reflect" if len(values) > _AROUND else "edge")
    mean = np.convolve(padded, box, "valid")
    variance = np.convolve(padded**2, box, "valid") - mean**2
    return np.clip((values - mean) / np.sqrt(np.maximum(variance, 1e-3) + 0.01), -3, 3)


class BeatState(NamedTuple):
    """A beat. ``length`` is the index in ``_lags`` of the time since the beat before it."""

    time_s: float
    subdivision: int
    length: int


def best_path(
    chords: Chords,
    begin_s: float,
    end_s: float,
    hints: BeatHints = NO_BEAT_HINTS,
    start: BeatState | None = None,
    usual_s: float | None = None,
) -> list[BeatState]:
    """Return the best beats from ``begin_s`` to ``end_s``. The first is ``start`` if set. With
    ``usual_s``, the length of each beat is within ``USUAL_RATIO`` of it."""
    steps = int((end_s - begin_s) / STEP_S) + 1
    lags = _lags(hints.bpm, usual_s)
    gain = _gains(chords, begin_s, steps, lags)
    if hints.first_downbeat_s is not None:
        distance_s = np.arange(steps) * STEP_S + begin_s - hints.first_downbeat_s
        gain[np.abs(distance_s) <= 2 * STEP_S] += 1e3
    # near: lengths that the beat before may have, as indices in `lags`. cost: of each change.
    subdivisions = list(PLACES)
    subs, lengths = np.arange(len(subdivisions)), np.arange(len(lags))
    near = np.clip(lengths[:, None] + np.arange(-_REACH, _REACH + 1), 0, len(lags) - 1)
    change = np.abs(np.log(lags[near] / lags[:, None]))
    tempo_cost = 10 * _TEMPO_COST if hints.fixed_tempo else _TEMPO_COST
    cost = np.where(change > 0.3, -_NEVER, tempo_cost * change)
    # best: total gain of the best path to each state, from `longest` steps before the start on.
    # back: index in `lags` of the length of the beat before; -1 if the path starts with the state.
    shortest, longest = int(lags[0]), int(lags[-1])
    best = np.full((longest + steps, len(subdivisions), len(lags)), _NEVER)
    back = np.full((steps, len(subdivisions), len(lags)), -1, np.int16)
    # Steps closer than the shortest beat are independent and computed at once.
    for begin in range(0, steps, shortest):
        block = np.arange(begin, min(begin + shortest, steps))
        before = longest + block[:, None] - lags  # index in `best` of the beat before
        candidates = best[before[:, None, :, None], subs[:, None, None], near] - cost
        value, source = candidates.max(3), near[lengths, candidates.argmax(3)]
        if start is None:  # the first beat may begin less than 8 steps after begin_s
            is_first = (block[:, None, None] < lags + 8) & (value < _NEVER / 2)
            value, source = np.where(is_first, 0.0, value), np.where(is_first, -1, source)
        best[longest + block] = value + gain[block]
        back[block] = source
        if start is not None and begin == 0:
            state = subdivisions.index(start.subdivision), start.length
            best[longest][state], back[0][state] = 0.0, -1
    is_last = np.arange(steps)[:, None, None] >= steps - lags  # the end is within the next beat
    totals = np.where(is_last, best[longest:], -np.inf)
    step, sub, length = map(int, np.unravel_index(totals.argmax(), totals.shape))
    path: list[BeatState] = []
    while length >= 0:
        path.append(BeatState(begin_s + step * STEP_S, subdivisions[sub], length))
        length_before = int(back[step, sub, length])
        step -= int(lags[length])
        length = length_before
    if start is None and step >= -5:  # also return the beat before, unless it is too early
        path.append(path[-1]._replace(time_s=begin_s + step * STEP_S))
    return path[::-1]


def _gains(chords: Chords, begin_s: float, steps: int, lags: I64) -> F64:
    """Return the gain of a beat that ends at each step, [steps, subdivisions, lags]."""
    place = ((chords.time_s - begin_s) / STEP_S).round().astype(int)
    inside = (place >= 0) & (place < steps)
    features, place = chords.features[inside], place[inside]
    table = np.zeros((steps, len(PLACES), len(lags)))
    for number, lag in enumerate(lags):
        beat_s = lag * STEP_S
        prior = -0.5 * (np.log(beat_s / _USUAL_S) / _WIDTH) ** 2 * _PRIOR * beat_s
        for row, sub in enumerate(PLACES):
            rare = _TERNARY * beat_s if sub == 3 else 0.0
            total = np.zeros(steps + lag)
            np.add.at(total, place[:, None] + np.arange(lag), _explained(features, sub, int(lag)))
            table[:, row, number] = total[:steps] + prior - rare
    sounding = np.zeros(steps)
    sounding[place] = 1
    sounding = np.convolve(sounding, np.ones(5), "same")
    table -= np.where(sounding > 0, 0, _SILENT_COST)[:, None, None]
    count = np.cumsum(np.append(np.zeros(_PAUSE), sounding > 0))
    is_pause = count[_PAUSE:] == count[:-_PAUSE]
    table[is_pause] = 0.0  # a pause gives no evidence, so the tempo continues
    return table


def _explained(features: F64, sub: int, lag: int) -> F64:
    """Return the log likelihood, [chords, lag], of each chord if its beat ends 0, 1, ... steps
    after the chord."""
    beat_s = lag * STEP_S
    logs = np.logaddexp(class_log_probabilities(features, sub, beat_s), _FLOOR)
    back_s = np.arange(lag) * STEP_S
    shapes = np.zeros((len(PLACES[sub]), lag))
    for shape, places in zip(shapes, PLACES[sub], strict=True):
        for place in places:
            distance = np.abs(back_s - (1 - place) % 1 * beat_s)
            distance = np.minimum(distance, beat_s - distance)
            shape += np.exp(-0.5 * (distance / _SIGMA_S) ** 2) / len(places)
    shapes /= _SIGMA_S * np.sqrt(2 * np.pi)
    on_beat = np.logaddexp(logs[:, 0], logs[:, 1])  # downbeats and other beats
    classes = np.concatenate([on_beat[:, None], logs[:, 2 : len(shapes) + 1]], 1)
    return np.log(shapes.max(0) + _ELSEWHERE / beat_s) + classes[:, shapes.argmax(0)]


def _lags(bpm: float | None, usual_s: float | None) -> I64:
    """Return the possible beat lengths in steps. With ``bpm``, they cover the lengths within 8 % of
    its beat, rounded to steps. With ``usual_s``, see ``best_path``."""
    shortest, longest = SHORTEST_S, LONGEST_S
    if bpm is not None:
        shortest, longest = 60 / bpm * 0.92, 60 / bpm * 1.08
    elif usual_s is not None:
        shortest = max(shortest, usual_s / USUAL_RATIO)
        longest = min(longest, usual_s * USUAL_RATIO)
    lags = [max(2, round(shortest / STEP_S))]
    while lags[-1] * STEP_S < longest:
        lags.append(max(lags[-1] + 1, round(lags[-1] * _RATIO)))
    return np.array(lags)


def beats_of_path(
    chords: Chords, path: Sequence[BeatState], subdivision: int, before_s: Sequence[float] = ()
) -> Beats:
    """Return beats without bars: the beats at ``before_s``, then the path, moved to nearby chords.

    The confidence measures how well the chords agree in phase, relative to beats or to halves,
    thirds or quarters of beats. Agreement is the length of the mean of exp(2 pi i n phase)
    (Rayleigh's test). The beats are smoothed first, because otherwise they follow the chords even
    in free playing, especially if chords are sparse. If the chords are further apart than the
    longest beat, the confidence is 0, because any beats would fit.
    """
    time_s = np.array([state.time_s for state in path])
    after = np.searchsorted(chords.time_s, time_s).clip(1, len(chords.time_s) - 1)
    early_s, late_s = chords.time_s[after - 1], chords.time_s[after]
    near_s = np.where(time_s - early_s < late_s - time_s, early_s, late_s)
    time_s = np.where(np.abs(near_s - time_s) < _SNAP_S, near_s, time_s)
    time_s = np.maximum.accumulate(time_s + np.arange(len(time_s)) * 1e-6)
    time_s = np.append(before_s, time_s)
    beats = Beats(time_s, np.zeros(len(time_s), np.int64), 4, subdivision, 0.0)
    apart_s = float(np.median(np.diff(chords.time_s)))
    if apart_s > LONGEST_S:
        return beats
    width = round(_SMOOTHED * max(1.0, apart_s * beats.bpm / 60))
    around = np.arange(-width, width + 1)
    index = np.arange(len(time_s))
    neighbours = np.clip(index[:, None] + around, 0, len(time_s) - 1)
    # Near the ends, use the same number of beats on both sides.
    inside = np.abs(around) <= np.minimum(index, index[::-1])[:, None]
    smooth_s = (time_s[neighbours] * inside).sum(1) / inside.sum(1)
    phases = replace(beats, time_s=smooth_s).position(chords.time_s)
    agreed = max(abs(np.exp(2j * np.pi * n * phases).mean()) for n in (1, 2, 3, 4))
    chance = np.sqrt(_CHANCE**2 + _FEW / len(phases))
    return replace(beats, confidence=float(np.clip((agreed - chance) / _CLEAR, 0, 1)))
