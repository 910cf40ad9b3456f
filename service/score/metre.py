"""Finds the metre of a performance: the length of its beats, the beats per bar, and the bars.

Detected beats are divided into units. A metre is a hierarchy of levels: units, beats, bars, and in
some metres levels between them. The length of each level is a multiple of the level below. There is
evidence for a level if notes are longer and harmony changes more where it starts than at the other
starts of the level below. There is also evidence if accents repeat after one or two of its lengths.
The weights of the evidence were fitted to scores and performances with known bars, but the priors
of metres and tempos were not (training/RESULTS.md). A performance has one metre. Bars may be
shortened.
"""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.score import beat_tracker
from service.score.beat_tracker import BeatState, Chords, chord_numbers, chords_of, relative
from service.score.beats import F64, I64, NO_BEAT_HINTS, BeatHints, Beats

# Weights of the evidence: similarity of accents after one and two lengths; longer notes; change of
# harmony over one length of the level below, and over one length of the level.
WEIGHTS = (0.67, 0.44, 0.39, 0.34, 0.19)
# Cost of a metre by subdivision and beats per bar: higher if it is rare.
RARE = {(2, 2): 0.3, (2, 3): 0.1, (2, 4): -0.4, (3, 2): 1.3, (3, 3): 2.1, (3, 4): 2.1}
_RAREST = 5.0  # cost of all other metres
_BEAT_S, _WIDTH, _TEMPO = 0.7, 0.4, 1.0  # log-normal prior of the beat length, and its weight
_FULL = 0.25  # cost of beats with more or less than one chord
# Cost of crowded beats. They have more than _MAX_CHORDS chords, which would need 32nds.
_CROWDED, _MAX_CHORDS = 10.0, 6
_WINDOW = 60  # number of beats that are evaluated at once
# Maximum number of starts of a level that count as evidence, because bars are similar.
_AS_MANY = 16
ON_UNIT = 0.3  # maximum distance, in units, from a unit to the onsets that belong to it
_OFF = 0.2  # in units: a note that ends this soon after the start of a unit does not sound in it
_LONGEST = 6.0  # maximum length of a note that counts, in beats
_CUT = 8.0  # cost of a shortened bar
_STAYS = 2.0  # gain of the metre of the preceding bars
_NEVER = -1e6
METRES = (2, 3, 4, 5, 7)  # beats per bar that can be detected
_MIN_BEATS = 4
_MAX_RESTS = 64  # maximum number of beats from the user's downbeat to the first detected beat
# Maximum share of beats much longer than usual, if they have more chords by this ratio. In a
# ritardando, long beats do not have more chords.
_STRAYS, _FULLER = 0.05, 1.2
_STRETCH_S, _UNSETTLED_S = 140.0, 20.0
"""The beat tracker processes _STRETCH_S at once (10 MB). The beats in the last _UNSETTLED_S of each
stretch are not final and are computed again."""


class Metre(NamedTuple):
    """A metre. ``beat``: length of a beat in units. A unit is a part of a detected beat."""

    beat: int
    subdivision: int
    beats_per_bar: int

    @property
    def bar(self) -> int:
        return self.beat * self.beats_per_bar

    @property
    def levels(self) -> list[tuple[int, int]]:
        """Length of the level below, and length of the level, in units, for each level."""
        half = {2 * self.beat} if self.beats_per_bar == 4 else set()
        part = {self.beat // self.subdivision} if self.beat > 1 else set()
        return list(pairwise(sorted({1, self.beat, self.bar} | half | part)))

    def sides(self, below: int, length: int) -> tuple[NDArray[np.bool_], ...]:
        """Return two masks of the units of a bar, which are True where the level of this ``length``
        starts, and where only the level below starts."""
        place = np.arange(self.bar)
        return place % length == 0, (place % below == 0) & (place % length > 0)


# Interpretations of detected beats, by subdivision: actual length in units, actual subdivision.
_READINGS = {
    2: ((2, 2), (4, 2), (1, 2), (3, 3), (6, 3)),
    3: ((3, 3), (1, 2), (2, 2), (6, 2)),
}


def find_beats(notes: F64, hints: BeatHints = NO_BEAT_HINTS) -> Beats | None:
    """Return the beats of a performance; None if it is too short. If many beats are much longer
    and fuller than usual, the beats are detected again without such lengths.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
    """
    if (chords := chords_of(notes)) is None:
        return None
    path = _path(chords, hints)
    if len(path) < _MIN_BEATS:
        return None
    time_s = np.array([state.time_s for state in path])
    beat_s = np.diff(time_s)
    usual_s = float(np.median(beat_s))
    is_long = beat_s > beat_tracker.USUAL_RATIO * usual_s
    count = np.histogram(chords.time_s + beat_tracker.STEP_S, time_s)[0]
    if is_long.mean() > _STRAYS and count[is_long].mean() > _FULLER * count[~is_long].mean():
        path = _path(chords, hints, usual_s)
    stated = hints.subdivision if hints.bpm else None
    beats = beat_tracker.beats_of_path(chords, path, stated or path[0].subdivision)
    first = None
    if hints.first_downbeat_s is not None:
        beats = _from(beats, hints.first_downbeat_s)
        first = int(np.abs(beats.time_s - hints.first_downbeat_s).argmin())
    return assign_bars(notes, beats, hints, first, keep=hints.bpm is not None)


def _from(beats: Beats, start_s: float) -> Beats:
    """Return the beats, continued backwards to the beat nearest to ``start_s``, because music may
    start with rests. If ``start_s`` is more than _MAX_RESTS beats early, they stay unchanged."""
    first = round(float(beats.position(np.array(start_s))))
    if not -_MAX_RESTS <= first < 0:
        return beats
    number = np.arange(first, len(beats.time_s), dtype=float)
    return replace(beats, time_s=beats.time(number), bar=np.zeros(len(number), np.int64))


def _path(chords: Chords, hints: BeatHints, usual_s: float | None = None) -> list[BeatState]:
    """Return the best beats of a performance (see ``best_path``). A long performance is processed
    in stretches, each from a final beat on, so that memory is bounded."""
    path: list[BeatState] = []
    end_s = -np.inf
    while end_s < chords.time_s[-1]:
        settled = [state for state in path if state.time_s < end_s - _UNSETTLED_S]
        start = settled[-1] if settled else None
        begin_s = start.time_s if start else chords.time_s[0] - beat_tracker.LEAD_S
        end_s = min(chords.time_s[-1] + 0.5, begin_s + _STRETCH_S)
        path = settled[:-1] + beat_tracker.best_path(chords, begin_s, end_s, hints, start, usual_s)
    return path


def assign_bars(
    notes: F64,
    beats: Beats,
    hints: BeatHints = NO_BEAT_HINTS,
    first: int | None = None,
    before: int | None = None,
    keep: bool = False,
) -> Beats:
    """Return the beats with bars, or beats of another length that suit the bars better.

    Args:
        notes: [notes, 4] onset and offset in s, MIDI pitch, velocity; onsets ascend.
        hints: beats of a bar and parts of a beat, if known.
        first: index of a beat that starts a bar, if known.
        before: beats per bar of the preceding bars, which are preferred.
        keep: True if the length of the beats must not change.
    """
    per = beats.subdivision
    units = Units(notes, beats)
    edges = np.linspace(0, units.count, max(1, round(units.count / per / _WINDOW)) + 1).astype(int)
    downbeat = first * per if first is not None else None
    sizes = METRES if hints.beats_per_bar is None else (hints.beats_per_bar,)
    kinds = [Metre(*kind, size) for kind in _READINGS[per] for size in sizes]
    kinds = [kind for kind in kinds if hints.subdivision in (None, kind.subdivision)]
    likely = [kind for kind in kinds if kind.beat == per or (not keep and kind.bar < units.count)]
    score: dict[Metre, float] = {}
    for metre in likely or kinds:
        score[metre] = _STAYS if metre.beats_per_bar == before else 0.0
        for window in map(slice, edges[:-1], edges[1:]):
            phases = units.weighted(metre, window)
            if downbeat is not None and window.start <= downbeat < window.stop:
                phases = phases[downbeat % metre.bar, None]
            elif keep:
                phases = phases[::per]
            average = np.logaddexp.reduce(phases) - np.log(len(phases))
            score[metre] += float(average) + units.prior(metre, window)
    metre = max(score, key=lambda metre: score[metre])
    places = units.places(metre, downbeat, keep)
    on_beat = np.flatnonzero(places % metre.beat == 0)
    return replace(
        beats,
        time_s=beats.time(on_beat / per),
        bar=places[on_beat] // metre.beat,
        beats_per_bar=metre.beats_per_bar,
        subdivision=metre.subdivision,
    )


class Units:
    """Evidence for metres from the notes that start or sound at each unit of the beats."""

    def __init__(self, notes: F64, beats: Beats) -> None:
        per = beats.subdivision
        self.count = count = (len(beats.time_s) - 1) * per + 1
        self.unit_s = float(np.median(np.diff(beats.time_s))) / per
        self._per = per
        onset, offset = (beats.position(notes[:, :2]) * per).T
        offset = np.minimum(offset, onset + _LONGEST * per)
        pitch = notes[:, 2].astype(int)
        nearest = np.round(onset).astype(int)
        on = (np.abs(onset - nearest) < ON_UNIT) & (nearest >= 0) & (nearest < count)
        longest = np.zeros(count)
        np.maximum.at(longest, nearest[on], (offset - onset)[on] / per)
        # One element for each note and each unit in which it sounds.
        begin = np.floor(onset + ON_UNIT).astype(int)
        lengths = np.maximum(np.floor(offset - _OFF).astype(int) - begin + 1, 1)
        note = np.repeat(np.arange(len(onset)), lengths)
        first_element = np.cumsum(lengths) - lengths  # by note
        unit = begin[note] + np.arange(len(note)) - first_element[note]
        inside = (unit >= 0) & (unit < count)
        note, unit = note[inside], unit[inside]
        share = np.minimum(offset[note], unit + 1) - np.maximum(onset[note], unit)
        self._harmony = np.zeros((count, 12))
        np.add.at(self._harmony, (unit, pitch[note] % 12), np.maximum(share, 0))
        lowest = np.full(count, np.inf)
        np.minimum.at(lowest, unit, pitch[note])
        # 1 where the lowest note starts, and its depth in octaves below the median of these notes.
        starts = np.unique(nearest[on][pitch[on] <= lowest[nearest[on]]])
        bass = np.zeros(count)
        if len(starts):
            bass[starts] = 1 + np.clip((np.median(lowest[starts]) - lowest[starts]) / 12, 0, 2)
        number = np.bincount(nearest[on], minlength=count)
        raw = np.log(longest + 0.1), np.log(number + 0.3), bass
        self._accents = np.stack([relative(values) for values in raw], 1)
        heads = np.append(True, np.diff(chord_numbers(notes[:, 0])) > 0)
        self._chords = np.bincount(begin[heads].clip(0, count - 1), minlength=count)
        self._changed: dict[int, F64] = {}  # by length

    def prior(self, metre: Metre, window: slice) -> float:
        """Return the log prior of a metre, which depends on how rare it is, on the length of its
        beats, on the number of chords per beat, and on the share of crowded beats."""
        off = np.log(metre.beat * self.unit_s / _BEAT_S) / _WIDTH
        chords = self._chords[window]
        full = np.log2(metre.beat * max(0.1, chords.mean()))
        crowded = (np.convolve(chords, np.ones(metre.beat)) > _MAX_CHORDS).mean()
        cost = RARE.get(metre[1:], _RAREST) + _TEMPO * off * off + _FULL * full * full
        return float(-cost - _CROWDED * crowded)

    def weighted(self, metre: Metre, window: slice) -> F64:
        """Return the log likelihood that bars start at unit 0, 1, ..., [units of a bar]."""
        unit = np.arange(self.count)[window] % metre.bar
        size = np.bincount(unit, minlength=metre.bar)
        place = np.arange(metre.bar)
        total = np.zeros((metre.bar, len(WEIGHTS)))  # evidence for all levels
        for below, length in metre.levels:
            total[:, :2] += self._alike(window, below, length)
            marks = self._marks(below, length)[window]
            sums = np.stack([np.bincount(unit, mark, metre.bar) for mark in marks.T], 1)
            # Units at which the level, or only the level below, starts: [phases, starts in a bar].
            on, off = (
                (place[side] + place[:, None]) % metre.bar for side in metre.sides(below, length)
            )
            on_count, off_count = (size[units].sum(1)[:, None] for units in (on, off))
            on_mean = sums[on].sum(1) / np.maximum(on_count, 1)
            off_mean = sums[off].sum(1) / np.maximum(off_count, 1)
            total[:, 2:] += np.sqrt(np.minimum(on_count, _AS_MANY)) * (on_mean - off_mean)
        return np.asarray(total @ WEIGHTS)

    def _marks(self, below: int, length: int) -> F64:
        """Return [units, 3]: length of notes; change of harmony over ``below`` and ``length``."""
        return np.stack([self._accents[:, 0], self._change(below), self._change(length)], 1)

    def _change(self, length: int) -> F64:
        """Return the change of harmony at each unit, relative to nearby units. It compares the
        ``length`` units before the unit with the ``length`` units from the unit on."""
        if length not in self._changed:
            total = np.vstack([np.zeros((1, 12)), np.cumsum(self._harmony, 0)])
            at = np.arange(self.count)
            before = _normed(total[at] - total[np.maximum(at - length, 0)])
            after = _normed(total[np.minimum(at + length, self.count)] - total[at])
            change = 1 - (before * after).sum(1)
            ends = (at < length) | (at > self.count - length)
            change[ends] = change[~ends].mean() if (~ends).any() else 0.0
            self._changed[length] = relative(change)
        return self._changed[length]

    def _alike(self, window: slice, below: int, length: int) -> F64:
        """Return the similarity of accents one and two lengths apart, relative to shorter lags."""
        rows = self._accents[window] - self._accents[window].mean(0)
        power = float((rows * rows).sum(1).mean()) + 1e-6
        alike = np.zeros(2)
        for number, end in enumerate((length, 2 * length)):
            if end <= 2 * len(rows) // 3:
                lags = range(end - length + below, end + 1, below)
                *others, own = ((rows[k:] * rows[:-k]).sum(1).mean() / power for k in lags)
                alike[number] = 4 * (own - np.mean(others))
        return alike

    def places(self, metre: Metre, downbeat: int | None, keep: bool) -> I64:
        """Return the position of each unit in its bar. Shortened bars have a cost. ``downbeat``:
        unit that starts a bar, if known."""
        at, place = np.arange(self.count), np.arange(metre.bar)
        scores = np.zeros((self.count, metre.bar))
        for below, length in metre.levels:
            marks = self._marks(below, length) @ WEIGHTS[2:] / np.sqrt(_AS_MANY)
            first, other = metre.sides(below, length)
            scores += marks[:, None] * (first - other * (first.sum() / other.sum()))
        if keep:
            scores[(at[:, None] % self._per > 0) != (place % metre.beat > 0)] = _NEVER
        if downbeat is not None:
            scores[downbeat, 1:] = _NEVER
        value = scores[0].copy()
        # For each unit at which a bar may start, the last position in the bar before.
        before = np.full(self.count, metre.bar - 1)
        for unit in range(1, self.count):
            best_place = int(value.argmax())  # a new bar may start after any position
            value = np.roll(value, 1)
            if value.max() - _CUT > value[0]:
                value[0], before[unit] = value.max() - _CUT, best_place
            value += scores[unit]
        places = np.empty(self.count, np.int64)
        places[-1] = value.argmax()
        for unit in range(self.count - 1, 0, -1):
            places[unit - 1] = places[unit] - 1 if places[unit] else before[unit]
        return places


def _normed(rows: F64) -> F64:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 0.1)
