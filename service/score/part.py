"""Writes the measures of an instrument in MusicXML: staves, voices, marks, keys and metres."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from math import lcm
from typing import NamedTuple
from xml.etree.ElementTree import Element

from model.instruments import PROGRAMS
from service.score.beats import Beats
from service.score.chord_symbols import ChordSymbol
from service.score.keys import Sections
from service.score.marks import CLEFS, Press, clefs_of_bars, dynamics, octave_lines, sections
from service.score.musicxml import (
    Accidentals,
    NoteWriter,
    beams,
    direction,
    element,
    harmony,
    set_offset,
)
from service.score.quantise import QuantisedNote
from service.score.rhythm import Rhythm, Value, free_bars
from service.score.spelling import spelled
from service.score.staves import OPEN, hands, tab_line
from service.score.voices import Bars, Chord, index_at, voices

KEYBOARDS = (None, "piano", "electric piano", "harpsichord", "organ", "mallets")
_MAX_SPAN = 42  # in semitones: a part without an instrument that exceeds it is a keyboard's
_TREBLE = ("violin", "flute", "oboe", "clarinet", "saxophone", "horn")
USUAL_CLEFS = {  # the nearest clef is used; other instruments use treble and bass clefs
    **dict.fromkeys(_TREBLE, ("Treble",)),
    "plucked": ("Treble8vb", "Bass8vb"),
    "viola": ("Alto", "Treble"),
    "cello": ("Bass", "Tenor"),
    "contrabass": ("Bass",),
    "bassoon": ("Bass", "Tenor"),
    "voice": ("Treble", "Treble8vb", "Bass"),
}
_ONE_CLEF = ("plucked", "voice")  # their clefs are those of guitars or basses, and of voices
_VOICES_PER_STAFF = 4  # readers of MusicXML expect the voices 1 to 4 on the first staff
_OCTAVE_SHIFTS = {"8va": "down", "8vb": "up"}  # direction from the sounding to the written notes


class Part(NamedTuple):
    """Notes of an instrument, if known, with their velocities, and presses of the pedal."""

    notes: Sequence[QuantisedNote]
    velocities: Sequence[int]
    instrument: str | None = None
    pedal: Sequence[Press] = ()


class Grid(NamedTuple):
    """Bars of a score.

    Attributes:
        keys: key signatures of the sections. The first section starts at the first bar.
        minor: True if the piece is in a minor key.
        steady: False in free rhythm, where notes have no stems and metres are hidden.
        barlines: indices of the bars that end in a barline.
    """

    beats: Beats
    bars: Bars
    keys: Sections
    minor: bool
    steady: bool
    barlines: Collection[int]


class Transposition(NamedTuple):
    """Interval from the sounding to the written pitch. ``fifths``: shift of the key signature."""

    semitones: int
    steps: int
    fifths: int


_CONCERT = Transposition(0, 0, 0)
TRANSPOSITIONS = {  # instruments in B flat, E flat and F; the last sounds an octave lower
    "clarinet": Transposition(2, 1, 2),
    "saxophone": Transposition(9, 5, 3),
    "horn": Transposition(7, 4, 1),
    "contrabass": Transposition(12, 7, 0),
}


def is_keyboard(instrument: str | None, notes: Sequence[QuantisedNote]) -> bool:
    pitches = [note.pitch for note in notes]
    is_wide = max(pitches, default=0) - min(pitches, default=0) > _MAX_SPAN
    return instrument in KEYBOARDS or (instrument not in PROGRAMS and is_wide)


def staves_of(
    instrument: str | None, notes: Sequence[QuantisedNote], bars: Bars
) -> list[tuple[Sequence[QuantisedNote], list[str]]]:
    """Return the notes of each staff, and its clef in each bar."""
    if is_keyboard(instrument, notes):
        staves = zip(hands(notes), (("Treble", "Bass"), ("Bass", "Treble")), strict=True)
        return [(own, clefs_of_bars(own, bars, choices)) for own, choices in staves]
    choices = USUAL_CLEFS.get(instrument or "", ("Treble", "Bass"))
    clefs = clefs_of_bars(notes, bars, choices, changes=instrument not in _ONE_CLEF)
    guitar = instrument == "plucked" and clefs[0] == "Treble8vb"
    return [(notes, clefs), *([(notes, ["Tab"] * len(bars))] if guitar else [])]


class PartWriter:
    """Writes the measures of an instrument."""

    def __init__(self, part: Part, grid: Grid) -> None:
        self._grid, self._part, instrument = grid, part, part.instrument
        self._transposition = TRANSPOSITIONS.get(instrument or "", _CONCERT)
        keys = [(at, fifths + self._transposition.fifths) for at, fifths in grid.keys]
        keys = [(at, fifths - 12 if fifths > 6 else fifths) for at, fifths in keys]
        self._keys, self._fifths = dict(keys), keys[0][1]
        semitones = self._transposition.semitones
        notes = [note._replace(pitch=note.pitch + semitones) for note in part.notes]
        names = spelled(notes, keys, grid.minor)  # both hands of a keyboard at once
        staves = staves_of(instrument, notes, grid.bars)
        self.clefs = [clefs for _, clefs in staves]  # by staff and bar
        one_line = not is_keyboard(instrument, notes) or not grid.steady
        self._chords: list[list[list[Chord]]] = [  # by staff and voice
            [tab_line(own)] if clefs[0] == "Tab" else voices(own, grid.bars, one_line)
            for own, clefs in staves
        ]
        self._values = [  # by staff, voice and bar
            [
                Rhythm(line, grid.bars, grid.beats).bars()
                if grid.steady
                else free_bars(line, grid.bars)
                for line in staff
            ]
            for staff in self._chords
        ]
        q = grid.beats.quarters
        bars = [bar for staff in self._values for line in staff for bar in line]
        edges = {value.end for bar in bars for value in bar}
        edges |= {at for press in part.pedal for at in press}
        edges |= {note.onset for note in part.notes}
        edges.add(Fraction(1))  # chord symbols are on beats
        self._divisions = lcm(*((q * edge).denominator for edge in edges))
        self._writers = [
            NoteWriter(
                names=names,
                quarters=q,
                divisions=self._divisions,
                staff=n,
                tablature=clefs[0] == "Tab",
                stems=clefs[0] != "Tab" and grid.steady,
            )
            for n, clefs in enumerate(self.clefs, 1)
        ]
        self._accidentals: dict[int, Accidentals] = {}  # by staff, since the last barline
        # By staff and bar: each mark, and the index, in the first voice, of the value after it.
        self._marks: dict[tuple[int, int], list[tuple[int, Element]]] = {}
        self._add_dynamics()
        self._add_pedal()
        self._add_octave_lines()

    def add_mark(self, staff: int, at: Fraction, mark: Element) -> None:
        """Add a direction or chord symbol above or below a staff.

        Args:
            staff: index of the staff.
            at: position in beats.
        """
        bar = index_at(self._grid.bars, at)
        begins = [value.begin for value in self._values[staff][0][bar]]
        begin = max((begin for begin in begins if begin <= at), default=begins[0])
        set_offset(mark, (at - begin) * self._grid.beats.quarters * self._divisions)
        self._marks.setdefault((staff, bar), []).append((begins.index(begin), mark))

    def add_chords(self, chords: Sequence[ChordSymbol]) -> None:
        """Add chord symbols above the first staff."""
        (begin, _), (last, count) = self._grid.bars[0], self._grid.bars[-1]
        for chord in chords:
            at = max(Fraction(chord.beat), begin)
            if at < last + count:
                self.add_mark(0, at, harmony(chord, 1))

    def _add_dynamics(self) -> None:
        onsets = [note.onset for note in self._part.notes]
        levels = dynamics(onsets, self._part.velocities, self._grid.bars)
        for at, level in levels.items():
            content = element("dynamics", element(level))
            self.add_mark(0, at, direction(content, "below", 1))

    def _add_pedal(self) -> None:
        (begin, _), (last, count) = self._grid.bars[0], self._grid.bars[-1]
        staff = len(self.clefs) - 1
        for press in self._part.pedal:
            down, up = max(press.down, begin), min(press.up, last + count)
            for at, kind in ((down, "start"), (up, "stop")) if down < up else ():
                content = element("pedal", type=kind, line="yes", sign="no")
                self.add_mark(staff, at, direction(content, "below", staff + 1))

    def _add_octave_lines(self) -> None:
        for staff, (lines, clefs) in enumerate(zip(self._chords, self.clefs, strict=True)):
            if clefs[0] == "Tab":
                continue
            first: dict[Chord, tuple[int, int]] = {}  # bar and index of a chord's first value
            after: dict[Chord, tuple[int, int]] = {}
            for bar, values in enumerate(self._values[staff][0]):
                for index, value in enumerate(values):
                    if value.chord:
                        first.setdefault(value.chord, (bar, index))
                        after[value.chord] = bar, index + 1
            for kind, chords in self._octave_lines_of(lines[0], lines[1], clefs):
                placement = "above" if kind == "8va" else "below"
                ends = (_OCTAVE_SHIFTS[kind], first[chords[0]]), ("stop", after[chords[-1]])
                for shift, (bar, index) in ends:
                    content = element("octave-shift", type=shift, size=8)
                    mark = direction(content, placement, staff + 1)
                    self._marks.setdefault((staff, bar), []).append((index, mark))

    def _octave_lines_of(
        self, line: Sequence[Chord], second: Sequence[Chord], clefs: Sequence[str]
    ) -> Iterator[tuple[str, list[Chord]]]:
        """Yield the octave lines of the first voice, within a clef. ``clefs``: by bar."""
        bars, onsets = self._grid.bars, [chord.onset for chord in second]
        for clef, run in groupby(line, lambda chord: clefs[index_at(bars, chord.onset)]):
            for section in sections(list(run), onsets, self._grid.beats.beats_per_bar):
                yield from octave_lines(section, clef)

    def is_empty(self, bar: int) -> bool:
        """Return True if a bar has neither notes nor marks."""
        lines = [line[bar] for staff in self._values for line in staff]
        has_marks = any((staff, bar) in self._marks for staff in range(len(self.clefs)))
        return not has_marks and not any(value.chord for line in lines for value in line)

    def measures(self, rests: Mapping[int, int]) -> Iterator[Element]:
        """Yield the measures. ``rests``: number of bars of each long rest, by its first bar."""
        beats, bars, keys, _, steady, barlines = self._grid
        ends = {at for at, _ in keys[1:]}
        nominal, size = beats.beats_per_bar, 0
        has_pickup = bars[0][1] < nominal
        empty: dict[int, list[Element]] = {}  # content of empty bars, by number of beats
        for bar, (start, count) in enumerate(bars):
            measure = element("measure", number=bar + (not has_pickup))
            if (bar == 0 and has_pickup) or not steady:  # without a number
                measure.set("implicit", "yes")
            attributes = element("attributes")
            if bar == 0:
                attributes.append(element("divisions", self._divisions))
            if start in self._keys:
                attributes.append(element("key", element("fifths", self._keys[start])))
            new_size = max(count, nominal) if bar == 0 else count
            if new_size != size:
                size = new_size
                above, below = beats.signature(size)
                time = element("time", element("beats", above), element("beat-type", below))
                if not steady:
                    time.set("print-object", "no")
                attributes.append(time)
            attributes.extend(self._staff_attributes(bar))
            if bar in rests:
                multiple = element("multiple-rest", rests[bar])
                attributes.append(element("measure-style", multiple))
            if len(attributes):
                measure.append(attributes)
            self._fifths = self._keys.get(start, self._fifths)
            if not steady or not self.is_empty(bar):
                measure.extend(self._content(bar))
            else:
                if count not in empty:
                    empty[count] = list(self._content(bar))
                measure.extend(empty[count])
            is_last = bar == len(bars) - 1
            style = "light-heavy" if is_last else "none" if bar not in barlines else None
            if start + count in ends:
                style = "light-light"
            if style:
                line = element("bar-style", style)
                measure.append(element("barline", line, location="right"))
            yield measure

    def _staff_attributes(self, bar: int) -> Iterator[Element]:
        if bar == 0 and len(self.clefs) > 1:
            yield element("staves", len(self.clefs))
        for number, clefs in enumerate(self.clefs, 1):
            if bar and clefs[bar] == clefs[bar - 1]:
                continue
            sign, line, octave = CLEFS[clefs[bar]][:3]
            change = element("clef-octave-change", octave) if octave else None
            place = element("sign", sign), element("line", line)
            yield element("clef", *place, change, number=number)
        if bar:
            return
        for number, clefs in enumerate(self.clefs, 1):
            if clefs[0] == "Tab":
                yield element("staff-details", element("staff-lines", len(OPEN)), number=number)
        if self._transposition.semitones:
            steps = element("diatonic", -self._transposition.steps)
            semitones = element("chromatic", -self._transposition.semitones)
            yield element("transpose", steps, semitones)

    def _content(self, bar: int) -> Iterator[Element]:
        """Yield the notes and marks of all staves in a bar."""
        for staff in range(len(self.clefs)):
            if staff:
                yield self._backup(self._grid.bars[bar][1])
            yield from self._bar_of_staff(staff, bar)

    def _bar_of_staff(self, staff: int, bar: int) -> Iterator[Element]:
        """Yield the voices and marks of a bar. The second voice is omitted if it has no notes."""
        writer, (start, count) = self._writers[staff], self._grid.bars[bar]
        first, *others = (line[bar] for line in self._values[staff])
        lines = [first, *(line for line in others if any(value.chord for value in line))]
        joined = count % 2 == 0 and self._grid.beats.subdivision == 2
        joins = [
            beams(line, start, writer.quarters, joined) if writer.stems else {} for line in lines
        ]
        if bar == 0 or bar - 1 in self._grid.barlines:
            self._accidentals[staff] = Accidentals(self._fifths, repeated=not self._grid.steady)
        accidentals = self._accidentals[staff]  # shared by both voices, in order of time
        written: dict[tuple[int, int], list[Element]] = {}
        for _, voice, index in sorted(
            (value.begin, voice, index)
            for voice, line in enumerate(lines)
            for index, value in enumerate(line)
        ):
            value: Value = lines[voice][index]
            number = _VOICES_PER_STAFF * staff + voice + 1
            fills_bar = value.chord is None and value.end - value.begin == count
            join = joins[voice].get(index, ())
            notes = writer.notes(value, number, accidentals, join, fills_bar, voice > 0)
            written[voice, index] = list(notes)
        marks = self._marks.get((staff, bar), ())
        for voice, line in enumerate(lines):
            if voice:
                yield self._backup(count)
            for index in range(len(line) + 1):
                yield from (mark for at, mark in marks if at == index and voice == 0)
                yield from written.get((voice, index), ())

    def _backup(self, beats: int) -> Element:
        duration = beats * self._grid.beats.quarters * self._divisions
        return element("backup", element("duration", duration))
