"""Beats and bars of a performance, found from its notes alone.

A dynamic programme over tempo, phase and metre. A state is a beat at a time, with the length of the
beat before it, its place in a bar of 2, 3 or 4 beats, and whether beats divide in two or three. A
step from one beat to the next earns what the chords within it say (``evidence``), and costs what
its tempo differs from the one before. So the tempo may follow a rubato, and bars stay whole. A long
performance is read in stretches, each from a settled beat, so that memory is bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.score.evidence import PLACES, Chords, chords_of, class_logs

STEP_S = 0.02  # of time in the programme
SHORTEST_S, LONGEST_S = 0.25, 1.7  # beats: 240 to 35 a minute
MIN_CHORDS = 8
SURE = 0.5  # confidence below which a performance is called free
_RATIO = 1.045  # of neighbouring beat lengths
_REACH = 5  # neighbours either way that the next beat may take
_SIGMA_S = 0.025  # of an onset about its place in the beat
_ELSEWHERE = 0.08  # share of onsets that keep to no place
_FLOOR = -4.0  # log probability of a class for any chord: no single one may decide
_TEMPO_COST = 7.0  # of a beat longer or shorter than the last, by the ratio's logarithm
_TERNARY = 0.7  # for each second of beats that divide in three: their six places suit any chord
_SILENT_COST = 1.5  # of a beat on which no chord falls
_METRE_COST = 20.0  # of another number of beats in the next bar
_DOWNBEATS = 0.35  # share among the beats that the evidence was fitted to
_USUAL_S, _WIDTH, _PRIOR = 0.7, 0.5, 2.5  # preferred beat: log-normal, weight for each second
_NEVER = -1e8
_SNAP_S = 0.05  # a beat this close to a chord is where the chord is
_METRES = (2, 3, 4)
_CHANCE, _CLEAR = 0.25, 0.55  # agreement of phases: confidence 0 and 1
_SMOOTHED = 2  # beats before and after
_STRETCH_S, _UNSETTLED_S = 140.0, 20.0  # read at once (70 MB), and at its end read again


@dataclass(frozen=True)
class Beats:
    """Beats of a performance.

    Attributes:
        time_s: [beats], ascending, at least two.
        bar: [beats] the beat's place in its bar, from 0.
        beats_per_bar: of most bars.
        subdivision: of the beats, 2 or 3; a bar of two beats of three parts is written as 6/8.
        confidence: 0 to 1; below ``SURE`` the performance keeps to no beat that can be found.
    """

    time_s: NDArray[np.float64]
    bar: NDArray[np.int64]
    beats_per_bar: int
    subdivision: int
    confidence: float

    @property
    def quarters(self) -> Fraction:
        """Length of a beat as written, in quarter notes."""
        return Fraction(1) if self.subdivision == 2 else Fraction(3, 2)

    @property
    def signature(self) -> tuple[int, int]:
        """Numerator and denominator."""
        return (self.beats_per_bar, 4) if self.subdivision == 2 else (3 * self.beats_per_bar, 8)

    @property
    def bpm(self) -> float:
        return 60 / float(np.median(np.diff(self.time_s)))

    def position(self, time_s: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Times in beats; before the first and after the last, at the tempo there."""
        times = np.asarray(time_s, float)
        first, last = self.time_s[1] - self.time_s[0], self.time_s[-1] - self.time_s[-2]
        inside = np.interp(times, self.time_s, np.arange(len(self.time_s)))
        early = np.minimum(times - self.time_s[0], 0) / first
        late = np.maximum(times - self.time_s[-1], 0) / last
        return inside + early + late

    def time(self, position: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of positions in beats: the inverse of ``position``."""
        count = len(self.time_s)
        whole = np.clip(np.floor(position).astype(int), 0, count - 2)
        begin, end = self.time_s[whole], self.time_s[whole + 1]
        return begin + (position - whole) * (end - begin)

    def bars(self, begin: Fraction | int, end: Fraction | int) -> list[tuple[Fraction, int]]:
        """The first beat and the number of beats of each bar that covers the beats given.

        The first is cut to what is needed of it (a pickup); bars outside of the beats found have
        ``beats_per_bar``.
        """
        downs = [int(beat) for beat in np.flatnonzero(self.bar == 0)] or [0]
        while downs[0] > begin:
            downs.insert(0, downs[0] - self.beats_per_bar)
        while downs[-1] < end:
            downs.append(downs[-1] + self.beats_per_bar)
        out = [(Fraction(a), b - a) for a, b in pairwise(downs) if b > begin and a < end]
        start, count = out[0]
        skipped = int((Fraction(begin) - start).__floor__())
        out[0] = (start + skipped, count - skipped)
        return out


@dataclass(frozen=True)
class Wishes:
    """What a listener knows better: beats a minute, beats of a bar, time of a first beat."""

    bpm: float | None = None
    beats_per_bar: int | None = None
    first_downbeat_s: float | None = None
    fixed_tempo: bool = False


def find_beats(notes: NDArray[np.float64], wishes: Wishes | None = None) -> Beats | None:
    """The beats of a performance; None if it has fewer than ``MIN_CHORDS`` chords.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    if not len(notes):
        return None
    chords = chords_of(notes)
    if len(chords.time_s) < MIN_CHORDS:
        return None
    programme = _Programme(chords, wishes or Wishes())
    states = programme.run()
    while programme.end_s < chords.time_s[-1]:
        settled = [state for state in states if state.time_s < programme.end_s - _UNSETTLED_S]
        programme = _Programme(chords, wishes or Wishes(), settled[-1])
        states = settled[:-1] + programme.run()
    return _beats(chords, states)


class _State(NamedTuple):
    """A beat; ``beat`` numbers the length of the one before."""

    time_s: float
    subdivision: int
    beats_per_bar: int
    place: int
    beat: int


class _Programme:
    """The dynamic programme over a stretch of a performance, from its beginning or from a beat."""

    def __init__(self, chords: Chords, wishes: Wishes, start: _State | None = None) -> None:
        self._begin_s = start.time_s if start else chords.time_s[0] - 0.1
        self.end_s = min(chords.time_s[-1] + 0.5, self._begin_s + _STRETCH_S)
        self._steps = int((self.end_s - self._begin_s) / STEP_S) + 1
        self._start = start
        self._lags = _lags(wishes.bpm)
        metres = (wishes.beats_per_bar,) if wishes.beats_per_bar else _METRES
        self._kinds = [
            (sub, metre, place) for sub in PLACES for metre in metres for place in range(metre)
        ]
        self._tempo_cost = 10 * _TEMPO_COST if wishes.fixed_tempo else _TEMPO_COST
        place = ((chords.time_s - self._begin_s) / STEP_S).round().astype(int)
        inside = (place >= 0) & (place < self._steps)
        self._features, self._place = chords.features[inside], place[inside]
        self._forced = None
        if wishes.first_downbeat_s is not None:
            self._forced = round((wishes.first_downbeat_s - self._begin_s) / STEP_S)

    def run(self) -> list[_State]:
        lags, kinds, steps = self._lags, self._kinds, self._steps
        count, width = len(lags), len(lags) * len(kinds)
        gain = self._gains()
        near = np.clip(np.arange(count)[:, None] + np.arange(-_REACH, _REACH + 1), 0, count - 1)
        apart = np.abs(np.log(lags[near] / lags[:, None]))
        cost = np.where(apart > 0.3, -_NEVER, self._tempo_cost * apart)
        place = {kind: number for number, kind in enumerate(kinds)}
        before = np.array([place[sub, metre, (at - 1) % metre] for sub, metre, at in kinds])
        # Bars of another number of beats may follow, of the same subdivision.
        downs = {
            sub: [n for n, kind in enumerate(kinds) if kind[0] == sub and not kind[2]]
            for sub in PLACES
        }
        # No step of a block can follow another of it: they are computed at once.
        block, longest = int(lags[0]), int(lags[-1])
        padded = -(-steps // block) * block
        best = np.full((longest + padded, len(kinds), count), _NEVER)
        back = np.full((padded, len(kinds), count), -1, np.int16)
        flat = best.reshape(-1)
        sources = np.arange(len(kinds))[:, None, None] * count + near
        origin = (longest - lags)[None, :, None] * width + sources
        within = (np.arange(block) * width)[:, None, None, None]
        for now in range(0, padded, block):
            candidates = flat.take(origin + now * width + within) - cost
            choice = candidates.argmax(3)[..., None]
            value = np.take_along_axis(candidates, choice, 3)[..., 0][:, before]
            source = np.take_along_axis(np.broadcast_to(sources, candidates.shape), choice, 3)
            source = source[..., 0][:, before]
            for own in downs.values():
                top = value[:, own].argmax(1)[:, None]
                other = np.take_along_axis(value[:, own], top, 1) - _METRE_COST
                better = other > value[:, own]
                value[:, own] = np.where(better, other, value[:, own])
                taken = np.take_along_axis(source[:, own], top, 1)
                source[:, own] = np.where(better, taken, source[:, own])
            if self._start is None and now < longest + block:  # it may begin within any beat
                fresh = (np.arange(now, now + block)[:, None, None] < lags + 8) & (
                    value < _NEVER / 2
                )
                value, source = np.where(fresh, 0.0, value), np.where(fresh, -1, source)
            rows = slice(now, min(now + block, steps))
            size = rows.stop - rows.start
            best[longest + now : longest + rows.stop] = value[:size] + gain(rows)
            back[rows] = source[:size]
            if self._start is not None and now == 0:
                at = place[self._start[1:4]], self._start.beat
                best[longest][at], back[0][at] = 0.0, -1
        return self._path(best[longest : longest + steps], back, before)

    def _path(
        self, best: NDArray[np.float64], back: NDArray[np.int16], before: NDArray[np.int64]
    ) -> list[_State]:
        lags, kinds = self._lags, self._kinds
        last = np.arange(self._steps)[:, None, None] >= self._steps - lags
        ends = np.where(last, best, -np.inf)
        now, kind, lag = map(int, np.unravel_index(int(ends.argmax()), ends.shape))
        path: list[tuple[int, int, int]] = []
        while True:
            path.append((now, kind, lag))
            source = back[now, kind, lag]
            now -= int(lags[lag])
            if source < 0 or now < 0:
                if now >= -5:
                    path.append((now, int(before[kind]), lag))
                break
            kind, lag = divmod(int(source), len(lags))
        return [
            _State(self._begin_s + step * STEP_S, *kinds[kind], lag)
            for step, kind, lag in reversed(path)
        ]

    def _gains(self) -> Callable[[slice], NDArray[np.float64]]:
        """What each beat earns, with the time before it: [steps, kinds, lags] for some steps."""
        table = np.zeros((self._steps, len(PLACES), 2, len(self._lags)))
        for number, lag in enumerate(self._lags):
            beat_s = lag * STEP_S
            prior = -0.5 * (np.log(beat_s / _USUAL_S) / _WIDTH) ** 2 * _PRIOR * beat_s
            for row, sub in enumerate(PLACES):
                rare = _TERNARY * beat_s if sub == 3 else 0.0
                table[:, row, :, number] = self._explained(sub, int(lag)) + prior - rare
        sounding = np.convolve(self._sum(np.ones(len(self._place)), np.ones(1)), np.ones(5), "same")
        table -= np.where(sounding > 0, 0, _SILENT_COST)[:, None, None, None]
        subs = [list(PLACES).index(sub) for sub, _, _ in self._kinds]
        downs = [int(place == 0) for _, _, place in self._kinds]
        if self._forced is not None and 0 <= self._forced < self._steps:
            table[:, :, 1] += np.where(np.abs(np.arange(self._steps) - self._forced) <= 2, 1e3, 0)[
                :, None, None
            ]
        # The evidence was fitted to bars of all metres; in one of m beats, a downbeat is 1 of m.
        share = np.array(
            [
                np.log(1 / metre / _DOWNBEATS)
                if not place
                else np.log((1 - 1 / metre) / (1 - _DOWNBEATS))
                for _, metre, place in self._kinds
            ]
        )
        return lambda rows: table[rows][:, subs, downs] + share[:, None]

    def _explained(self, sub: int, lag: int) -> NDArray[np.float64]:
        """Log likelihood of the chords in the beat before each step: [steps, (not) a downbeat]."""
        beat_s = lag * STEP_S
        logs = np.logaddexp(class_logs(self._features, sub, beat_s), _FLOOR)
        back_s = np.arange(lag) * STEP_S
        shapes = np.zeros((len(PLACES[sub]), lag))
        for shape, places in zip(shapes, PLACES[sub], strict=True):
            for place in places:
                distance = np.abs(back_s - (1 - place) % 1 * beat_s)
                distance = np.minimum(distance, beat_s - distance)
                shape += np.exp(-0.5 * (distance / _SIGMA_S) ** 2) / len(places)
        shapes /= _SIGMA_S * np.sqrt(2 * np.pi)
        owner = shapes.argmax(0)
        early = (owner == 0) & (back_s >= beat_s / 2)  # just after the last beat, which was either
        late = (owner == 0) & ~early
        out = self._sum(np.ones(len(logs)), np.log(shapes.max(0) + _ELSEWHERE / beat_s))
        out += self._sum(np.logaddexp(logs[:, 0], logs[:, 1]), early)
        for place in range(1, len(shapes)):
            out += self._sum(logs[:, place + 1], owner == place)
        return np.stack([out + self._sum(logs[:, 1], late), out + self._sum(logs[:, 0], late)], 1)

    def _sum(self, values: NDArray[np.float64], kernel: NDArray[Any]) -> NDArray[np.float64]:
        train = np.zeros(self._steps)
        np.add.at(train, self._place, values)
        return np.convolve(train, kernel.astype(float))[: self._steps]


def _lags(bpm: float | None = None) -> NDArray[np.int64]:
    """Beat lengths in steps."""
    shortest, longest = SHORTEST_S, LONGEST_S
    if bpm is not None:
        shortest, longest = 60 / bpm * 0.92, 60 / bpm * 1.08
    lags = [max(2, round(shortest / STEP_S))]
    while lags[-1] * STEP_S < longest:
        lags.append(max(lags[-1] + 1, round(lags[-1] * _RATIO)))
    return np.array(lags)


def _beats(chords: Chords, states: list[_State]) -> Beats:
    time_s = np.array([state.time_s for state in states])
    after = np.searchsorted(chords.time_s, time_s).clip(1, len(chords.time_s) - 1)
    before_s, after_s = chords.time_s[after - 1], chords.time_s[after]
    near_s = np.where(time_s - before_s < after_s - time_s, before_s, after_s)
    time_s = np.where(np.abs(near_s - time_s) < _SNAP_S, near_s, time_s)
    time_s = np.maximum.accumulate(time_s + np.arange(len(time_s)) * 1e-6)
    metres = [state.beats_per_bar for state in states]
    beats = Beats(
        time_s=time_s,
        bar=np.array([state.place for state in states]),
        beats_per_bar=max(set(metres), key=metres.count),
        subdivision=states[0].subdivision,
        confidence=1.0,
    )
    return replace(beats, confidence=_confidence(chords, beats))


def _confidence(chords: Chords, beats: Beats) -> float:
    """How far the chords' phases agree, in beats or in a half to a quarter of them.

    The mean of exp(2 pi i n phase) is long if they do (Rayleigh's test). The beats are smoothed, as
    they bend to chords at random; such chords reach _CHANCE.
    """
    around = np.arange(-_SMOOTHED, _SMOOTHED + 1)
    places = np.clip(np.arange(len(beats.time_s))[:, None] + around, 0, len(beats.time_s) - 1)
    # At the ends, as many beats on one side as on the other.
    inside = (
        np.abs(around)
        <= np.minimum(*(np.abs(places[:, [0, -1]] - places[:, [_SMOOTHED]]).T))[:, None]
    )
    smooth_s = (beats.time_s[places] * inside).sum(1) / inside.sum(1)
    phases = replace(beats, time_s=smooth_s).position(chords.time_s)
    agreed = max(abs(np.exp(2j * np.pi * n * phases).mean()) for n in (1, 2, 3, 4))
    return float(np.clip((agreed - _CHANCE) / (_CLEAR - _CHANCE), 0, 1))
