"""Beats of a performance, found from its notes alone.

A dynamic programme over tempo and phase. A state is a beat at a time, with the length of the beat
before it, and whether beats divide in two or three. A step from one beat to the next earns what the
chords within it say (``evidence``), and costs what its tempo differs from the one before, so that
it may follow a rubato. A long performance is read in stretches, each from a settled beat, so that
memory is bounded. Then the metre is found in the beats (``metre``).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.score.beats import F64, I64, NO_WISHES, Beats, Wishes
from service.score.evidence import PLACES, Chords, chords_of, class_logs
from service.score.metre import in_bars

STEP_S = 0.02  # of time in the programme
LEAD_S = 0.1  # of the programme before the first chord
SHORTEST_S, LONGEST_S = 0.25, 1.7  # beats: 240 to 35 a minute
_MIN_BEATS = 4
_RATIO = 1.045  # of neighbouring beat lengths
_REACH = 5  # neighbours either way that the next beat may take
_SIGMA_S = 0.025  # of an onset about its place in the beat
_ELSEWHERE = 0.08  # share of onsets that keep to no place
_FLOOR = -4.0  # log probability of a class for any chord: no single one may decide
_TEMPO_COST = 7.0  # of a beat longer or shorter than the last, by the ratio's logarithm
_TERNARY = 0.7  # for each second of beats that divide in three: their six places suit any chord
_SILENT_COST = 1.5  # of a beat on which no chord falls
_USUAL_S, _WIDTH, _PRIOR = 0.75, 0.5, 2.5  # preferred beat: log-normal, weight for each second
_NEVER = -1e8
_PAUSE = round(2 * LONGEST_S / STEP_S)  # steps without a chord
_SNAP_S = 0.05  # a beat this close to a chord is where the chord is
_CHANCE, _FEW, _CLEAR = 0.2, 3.0, 0.3  # agreement of phases by chance, and what it is more
_SMOOTHED = 2  # beats before and after
_STRETCH_S, _UNSETTLED_S = 140.0, 20.0  # read at once (10 MB), and at its end read again


def find_beats(notes: F64, wishes: Wishes = NO_WISHES) -> Beats | None:
    """The beats of a performance; None if it is too short to have any.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    if (chords := chords_of(notes)) is None:
        return None
    path: list[State] = []
    end_s = -np.inf
    while end_s < chords.time_s[-1]:
        settled = [state for state in path if state.time_s < end_s - _UNSETTLED_S]
        start = settled[-1] if settled else None
        begin_s = start.time_s if start else chords.time_s[0] - LEAD_S
        end_s = min(chords.time_s[-1] + 0.5, begin_s + _STRETCH_S)
        path = settled[:-1] + best_path(chords, begin_s, end_s, wishes, start)
    if len(path) < _MIN_BEATS:
        return None
    beats = pulse(chords, snapped(chords, path), path[0].subdivision)
    first = None
    if wishes.first_downbeat_s is not None:
        first = int(np.abs(beats.time_s - wishes.first_downbeat_s).argmin())
    return in_bars(notes, beats, wishes.beats_per_bar, first, keep=wishes.bpm is not None)


class State(NamedTuple):
    """A beat; ``length`` numbers that of the one before."""

    time_s: float
    subdivision: int
    length: int


def best_path(
    chords: Chords,
    begin_s: float,
    end_s: float,
    wishes: Wishes = NO_WISHES,
    start: State | None = None,
) -> list[State]:
    """The best beats of a stretch of a performance, those after ``start`` if it is given."""
    steps = int((end_s - begin_s) / STEP_S) + 1
    lags = _lags(wishes.bpm)
    gain = _gains(chords, begin_s, steps, lags)
    if wishes.first_downbeat_s is not None:
        forced = np.arange(steps) * STEP_S + begin_s - wishes.first_downbeat_s
        gain[np.abs(forced) <= 2 * STEP_S] += 1e3
    count, subs = len(lags), list(PLACES)
    near = np.clip(np.arange(count)[:, None] + np.arange(-_REACH, _REACH + 1), 0, count - 1)
    apart = np.abs(np.log(lags[near] / lags[:, None]))
    tempo_cost = 10 * _TEMPO_COST if wishes.fixed_tempo else _TEMPO_COST
    cost = np.where(apart > 0.3, -_NEVER, tempo_cost * apart)
    # No step of a block can follow another of it: they are computed at once.
    block, longest = int(lags[0]), int(lags[-1])
    padded = -(-steps // block) * block
    best = np.full((longest + padded, len(subs), count), _NEVER)
    back = np.full((padded, len(subs), count), -1, np.int16)
    flat, width = best.reshape(-1), len(subs) * count
    sources = np.arange(len(subs))[:, None, None] * count + near
    origin = (longest - lags)[None, :, None] * width + sources
    within = (np.arange(block) * width)[:, None, None, None]
    for now in range(0, padded, block):
        candidates = flat.take(origin + now * width + within) - cost
        choice = candidates.argmax(3)[..., None]
        value = np.take_along_axis(candidates, choice, 3)[..., 0]
        source = np.take_along_axis(np.broadcast_to(sources, candidates.shape), choice, 3)[..., 0]
        if start is None and now < longest + block:  # it may begin within any beat
            fresh = (np.arange(now, now + block)[:, None, None] < lags + 8) & (value < _NEVER / 2)
            value, source = np.where(fresh, 0.0, value), np.where(fresh, -1, source)
        rows = slice(now, min(now + block, steps))
        size = rows.stop - rows.start
        best[longest + now : longest + rows.stop] = value[:size] + gain[rows]
        back[rows] = source[:size]
        if start is not None and now == 0:
            at = subs.index(start.subdivision), start.length
            best[longest][at], back[0][at] = 0.0, -1
    last = np.arange(steps)[:, None, None] >= steps - lags
    ends = np.where(last, best[longest : longest + steps], -np.inf)
    now, sub, lag = map(int, np.unravel_index(int(ends.argmax()), ends.shape))
    path: list[State] = []
    while True:
        path.insert(0, State(begin_s + now * STEP_S, subs[sub], lag))
        source = back[now, sub, lag]
        now -= int(lags[lag])
        if source < 0 or now < 0:
            early = [path[0]._replace(time_s=begin_s + now * STEP_S)]  # than the first chord
            return early + path if now >= -5 and start is None else path
        sub, lag = divmod(int(source), count)


def _gains(chords: Chords, begin_s: float, steps: int, lags: I64) -> F64:
    """What each beat earns, with the time before it: [steps, subdivisions, lags]."""
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
    heard = np.cumsum(np.append(np.zeros(_PAUSE), sounding > 0))
    paused = heard[_PAUSE:] == heard[:-_PAUSE]
    table[paused] = 0.0  # a pause says nothing: its tempo is that of the music around
    return table


def _explained(features: F64, sub: int, lag: int) -> F64:
    """Log likelihood of each chord, 0, 1, ... steps before the end of a beat: [chords, lag]."""
    beat_s = lag * STEP_S
    logs = np.logaddexp(class_logs(features, sub, beat_s), _FLOOR)
    back_s = np.arange(lag) * STEP_S
    shapes = np.zeros((len(PLACES[sub]), lag))
    for shape, places in zip(shapes, PLACES[sub], strict=True):
        for place in places:
            distance = np.abs(back_s - (1 - place) % 1 * beat_s)
            distance = np.minimum(distance, beat_s - distance)
            shape += np.exp(-0.5 * (distance / _SIGMA_S) ** 2) / len(places)
    shapes /= _SIGMA_S * np.sqrt(2 * np.pi)
    on_beat = np.logaddexp(logs[:, 0], logs[:, 1])  # whether it begins a bar or not
    classes = np.concatenate([on_beat[:, None], logs[:, 2 : len(shapes) + 1]], 1)
    return np.log(shapes.max(0) + _ELSEWHERE / beat_s) + classes[:, shapes.argmax(0)]


def _lags(bpm: float | None = None) -> I64:
    """Beat lengths in steps."""
    shortest, longest = SHORTEST_S, LONGEST_S
    if bpm is not None:
        shortest, longest = 60 / bpm * 0.92, 60 / bpm * 1.08
    lags = [max(2, round(shortest / STEP_S))]
    while lags[-1] * STEP_S < longest:
        lags.append(max(lags[-1] + 1, round(lags[-1] * _RATIO)))
    return np.array(lags)


def snapped(chords: Chords, path: list[State]) -> F64:
    """Times of beats, [beats] in s: where the nearest chord is, if it is close."""
    time_s = np.array([state.time_s for state in path])
    after = np.searchsorted(chords.time_s, time_s).clip(1, len(chords.time_s) - 1)
    before_s, after_s = chords.time_s[after - 1], chords.time_s[after]
    near_s = np.where(time_s - before_s < after_s - time_s, before_s, after_s)
    time_s = np.where(np.abs(near_s - time_s) < _SNAP_S, near_s, time_s)
    return np.maximum.accumulate(time_s + np.arange(len(time_s)) * 1e-6)


def pulse(chords: Chords, time_s: F64, subdivision: int) -> Beats:
    """Beats without bars. They are as sure as the phases of chords agree, in beats or in a half to
    a quarter of them.

    The mean of exp(2 pi i n phase) is long if they do (Rayleigh's test). The beats are smoothed, as
    they bend to chords at random; so do those of free playing, the more the fewer chords it has.
    0 if chords are further apart than beats may be: any beats fit those, and nobody hears a beat.
    """
    beats = Beats(time_s, np.zeros(len(time_s), np.int64), 4, subdivision, 0.0)
    apart_s = float(np.median(np.diff(chords.time_s)))
    if apart_s > LONGEST_S:
        return beats
    width = round(_SMOOTHED * max(1.0, apart_s * beats.bpm / 60))
    around = np.arange(-width, width + 1)
    places = np.clip(np.arange(len(time_s))[:, None] + around, 0, len(time_s) - 1)
    # At the ends, as many beats on one side as on the other.
    fewest = np.minimum(*np.abs(places[:, [0, -1]] - places[:, [width]]).T)
    inside = np.abs(around) <= fewest[:, None]
    smooth_s = (time_s[places] * inside).sum(1) / inside.sum(1)
    phases = replace(beats, time_s=smooth_s).position(chords.time_s)
    agreed = max(abs(np.exp(2j * np.pi * n * phases).mean()) for n in (1, 2, 3, 4))
    chance = np.sqrt(_CHANCE**2 + _FEW / len(phases))
    return replace(beats, confidence=float(np.clip((agreed - chance) / _CLEAR, 0, 1)))
