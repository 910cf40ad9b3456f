"""Writes the rhythm of a voice: notes and rests as note values, split at beats and bars.

All times are in beats. The written end of a note is the simplest position near its end, which
removes short rests. Notes and rests are then split into note values with at most one dot, so that
the beats are visible. A beat of three parts is a tuplet if the metre divides beats into two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import count, groupby
from math import floor, log2
from typing import NamedTuple

from service.score.beats import Beats
from service.score.voices import Bars, Chord

_MIN_REST = Fraction(1, 4)  # in beats; shorter rests are articulation and are not written
_MAX_RATIO = 1.5  # maximum ratio of written to played length, except for the shortest notes
_MAX_CHANGE = Fraction(3, 2)  # maximum difference between written and played length, in beats
_DEVIATION, _SYMBOL, _TIE, _DOT = 2.0, 1.0, 0.5, 0.2  # costs of doubled length, symbol, tie, dot
_STACCATO_S, _STACCATO = 0.25, 0.5  # maximum staccato length: in s, and relative to its note value
_HALF = Fraction(1, 2)


class Tuplet(NamedTuple):
    """A tuplet of ``length`` beats: ``actual`` notes in the time of ``normal`` notes."""

    actual: int
    normal: int
    length: Fraction


class Value(NamedTuple):
    """A single note value: a note, a chord, or a rest (``chord`` is None). Times are in beats.

    Attributes:
        last: True if no tie follows.
        mark: "start" for the first and "stop" for the last value of a tuplet, else None.
    """

    begin: Fraction
    end: Fraction
    chord: Chord | None = None
    last: bool = True
    staccato: bool = False
    tuplet: Tuplet | None = None
    mark: str | None = None

    @property
    def tie(self) -> str | None:
        """Type of the tie in MusicXML; None if the value is not tied."""
        if self.chord is None or self.begin == self.chord.onset:
            return None if self.last else "start"
        return "stop" if self.last else "continue"


class Rhythm:
    """Writes a line of chords that do not overlap."""

    def __init__(self, line: Sequence[Chord], bars: Bars, beats: Beats) -> None:
        self._line, self._beats, self._beat_s = line, beats, 60 / beats.bpm
        self._starts = [start for start, _ in bars]
        self._end = bars[-1][0] + bars[-1][1]
        self._edges = [*self._starts, self._end]
        self._bar_of_beat = [bar for bar, (_, count) in enumerate(bars) for _ in range(count)]
        # Half of a bar in beats, or 0 if values need not show the middle of a bar.
        self._half_bar = {4: 2, 6: 3}.get(beats.beats_per_bar, 0)
        shift = max(0, beats.beats_per_bar - bars[0][1])  # beats that a pickup lacks at its start
        self._middles = [start + self._half_bar for start in self._starts]
        self._middles[0] -= shift
        self._tuplets: dict[int, set[Fraction]] = {}  # positions of onsets, by beats with tuplets
        # Not grace notes: the other hand may have the note after a grace note, and its tuplet.
        timed = (chord for chord in line if not chord.grace)
        for beat, own in groupby(timed, key=lambda chord: floor(chord.onset)):
            places = {chord.onset - beat for chord in own}
            if beats.subdivision == 2 and any(place.denominator % 3 == 0 for place in places):
                self._tuplets[beat] = places

    def bars(self) -> list[list[Value]]:
        """Return the values that fill each bar. Grace notes have no length."""
        out: list[list[Value]] = [[] for _ in self._starts]
        plain = [chord for chord in self._line if not chord.grace]
        now = self._starts[0]
        for chord, following in zip(plain, [*plain[1:], None], strict=False):
            end = self._written_end(chord, following.onset if following else self._end)
            for begin, stop in self._values(now, chord.onset, rest=True):
                self._add(out, Value(begin, stop))
            sounds_s = float(chord.length) * self._beat_s
            short = sounds_s < _STACCATO_S and chord.length < _STACCATO * (end - chord.onset)
            for begin, stop in self._values(chord.onset, end):
                self._add(out, Value(begin, stop, chord, stop == end, short))
            now = end
        for begin, stop in self._values(now, self._end, rest=True):
            self._add(out, Value(begin, stop))
        for chord in self._line:
            if chord.grace:
                bar = out[bisect_right(self._starts, chord.onset) - 1]
                before = bisect_left(bar, chord.onset, key=lambda value: value.begin)
                bar.insert(before, Value(chord.onset, chord.onset, chord))
        return out

    def _add(self, out: Sequence[list[Value]], value: Value) -> None:
        if tuplet := self._tuplet(value.begin):
            edges = value.begin % tuplet.length, value.end % tuplet.length
            mark = "start" if edges[0] == 0 else "stop" if edges[1] == 0 else None
            value = value._replace(tuplet=tuplet, mark=mark)
        out[bisect_right(self._starts, value.begin) - 1].append(value)

    def _tuplet(self, begin: Fraction) -> Tuplet | None:
        beat = floor(begin)
        if (places := self._tuplets.get(beat)) is None:
            return None
        if _HALF in places:  # each half of the beat is a separate group
            first = _HALF if begin - beat >= _HALF else 0
            inside = any(first < place < first + _HALF for place in places)
            return Tuplet(3, 2, _HALF) if inside else None
        sixths = any(place.denominator == 6 for place in places)
        return Tuplet(6, 4, Fraction(1)) if sixths else Tuplet(3, 2, Fraction(1))

    def _written_end(self, chord: Chord, following: Fraction) -> Fraction:
        """Return the written end of a note: the simplest position near the end of its sound."""
        onset, played = chord.onset, chord.length
        # Positions from half of the played length to _MAX_RATIO times this length, but within
        # _MAX_CHANGE of it; at least one.
        earliest = onset + max(played / 2, played - _MAX_CHANGE)
        latest = onset + min(Fraction(_MAX_RATIO) * played, played + _MAX_CHANGE)
        ends: list[Fraction] = []
        for end in self._places_after(onset):
            if end >= following - _MIN_REST or (ends and end > latest):
                break
            if end >= earliest:
                ends.append(end)
        if not ends or following <= latest:
            ends.append(following)

        # All ends are compared with the rests until the same position.
        bar = min(bisect_right(self._edges, ends[-1]), len(self._edges) - 1)
        horizon = min(following, self._edges[bar])

        def cost(end: Fraction) -> float:
            rests = self._values(end, horizon, rest=True)
            price = _DEVIATION * abs(log2((end - onset) / played))
            return price + self._cost(self._values(onset, end)) + self._cost(rests)

        return min(ends, key=cost) if len(ends) > 1 else ends[0]

    def _places_after(self, onset: Fraction) -> Iterator[Fraction]:
        """Yield the positions after ``onset`` at which a note may end: thirds of beats that are
        divided into three parts, and halves of other beats."""
        for beat in count(floor(onset)):
            is_tuplet = beat in self._tuplets and _HALF not in self._tuplets[beat]
            parts = 3 if self._beats.subdivision == 3 or is_tuplet else 2
            places = (beat + Fraction(part, parts) for part in range(1, parts + 1))
            yield from (place for place in places if place > onset)

    def _cost(self, values: Iterable[tuple[Fraction, Fraction]]) -> float:
        """Return the cost of reading consecutive values, such as tied notes."""
        lengths = [end - begin for begin, end in values]
        dots = sum(length.numerator % 3 == 0 for length in lengths)
        return len(lengths) * _SYMBOL + max(0, len(lengths) - 1) * _TIE + dots * _DOT

    def _values(
        self, begin: Fraction, end: Fraction, rest: bool = False
    ) -> Iterator[tuple[Fraction, Fraction]]:
        """Yield the begin and end of each value with which a note or a rest is written."""
        while begin < end:
            bar = self._bar_of_beat[floor(begin - self._starts[0])]
            barline = self._edges[bar + 1]
            if rest and begin == self._edges[bar] and barline <= end:
                yield begin, barline
                begin = barline
                continue
            stop = self._stop(begin, min(end, barline), self._middles[bar], rest)
            tuplet = self._tuplet(begin)
            unit = self._beats.quarters * (Fraction(tuplet.actual, tuplet.normal) if tuplet else 1)
            while begin < stop:
                length = stop - begin
                if not _is_value(length * unit):
                    length = Fraction(1 << (length.numerator.bit_length() - 1), length.denominator)
                yield begin, begin + length
                begin += length

    def _stop(self, begin: Fraction, end: Fraction, middle: Fraction, rest: bool) -> Fraction:
        """Return the end of the first part into which a note or rest within a bar is split."""
        beat, last_beat, length = floor(begin), floor(end), end - begin
        next_beat, half = beat + 1, beat + _HALF
        is_plain = self._beats.subdivision == 2 and not {beat, last_beat} & self._tuplets.keys()
        if end <= next_beat:  # rests shorter than a beat are split at its middle
            is_split = rest and is_plain and begin < half < end and length < 1
            return half if is_split else end
        if begin > beat:  # syncopated notes of one beat are split only at the middle of the bar
            is_syncope = is_plain and not rest and begin == half and length == 1
            return end if is_syncope and next_beat != middle else Fraction(next_beat)
        if rest:
            half_bar = self._half_bar
            is_half = half_bar and (begin - middle) % half_bar == 0 and length >= half_bar
            return begin + (half_bar if is_half else 1)
        is_dotted = is_plain and length == 3 * _HALF and last_beat != middle
        return end if is_dotted or end == last_beat else Fraction(last_beat)


def free_bars(line: Sequence[Chord], bars: Bars) -> list[list[Value]]:
    """Return the values of each bar in free rhythm. A chord has at most one beat and no tie. Rests,
    which are not drawn, fill the time until the next chord."""
    out = []
    onsets = [chord.onset for chord in line]
    for start, beats in bars:
        now, end, values = start, start + beats, list[Value]()
        for index in range(bisect_left(onsets, start), bisect_left(onsets, end)):
            chord = line[index]
            values += (Value(*span) for span in _plain_spans(now, chord.onset))
            now = chord.onset
            if not chord.grace:
                following = min([end, *onsets[index + 1 : index + 2]])
                _, now = next(_plain_spans(now, following))
            values.append(Value(chord.onset, now, chord))
        is_empty = not values
        rests = [(start, end)] if is_empty else _plain_spans(now, end)
        out.append([*values, *(Value(*span) for span in rests)])
    return out


def _plain_spans(begin: Fraction, end: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield the begin and end of each value that fills a span: undotted, at most one beat long."""
    while begin < end:
        length = min(end - begin, Fraction(1))
        length = Fraction(1 << (length.numerator.bit_length() - 1), length.denominator)
        yield begin, begin + length
        begin += length


def _is_value(quarters: Fraction) -> bool:
    """Return True if a single note value, with at most one dot, has this length."""
    above, below = quarters.numerator, quarters.denominator
    if above % 3 == 0:
        above //= 3
    return above & (above - 1) == 0 and below & (below - 1) == 0
