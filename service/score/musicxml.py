"""Builds elements of MusicXML 4.0: notes, rests, beams, accidentals and directions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from itertools import groupby
from math import floor
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from service.score.chord_symbols import ChordSymbol
from service.score.rhythm import Tuplet, Value
from service.score.spelling import Name, Names

TYPES = ("breve", "whole", "half", "quarter", "eighth", "16th", "32nd", "64th", "128th", "256th")
_QUARTER, _FLAGGED = TYPES.index("quarter"), TYPES.index("eighth")
_DOCTYPE = (
    b"<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE score-partwise PUBLIC "
    b'"-//Recordare//DTD MusicXML 4.0 Partwise//EN" "http://www.musicxml.org/dtds/partwise.dtd">\n'
)
_NAME = "score.musicxml"  # name of the file in an archive
_ACCIDENTALS = {-2: "flat-flat", -1: "flat", 0: "natural", 1: "sharp", 2: "double-sharp"}
_KINDS = {
    "": "major",
    "m": "minor",
    "7": "dominant",
    "m7": "minor-seventh",
    "maj7": "major-seventh",
    "dim": "diminished",
    "m7b5": "half-diminished",
    "dim7": "diminished-seventh",
    "aug": "augmented",
    "sus4": "suspended-fourth",
    "sus2": "suspended-second",
}  # kinds of chords in MusicXML, by quality

Beams = Mapping[int, Sequence[str]]  # type of the beam at each level, by the index of a value
Content = Element | str | int | Fraction | None


def element(tag: str, *children: Content, **attributes: str | int) -> Element:
    """Return an element. Children that are None are omitted. A string or number becomes the text.
    Underscores in names of attributes are written as hyphens."""
    result = Element(tag, {name.replace("_", "-"): str(v) for name, v in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            result.append(child)
        elif child is not None:
            result.text = str(child)
    return result


def document(root: Element) -> bytes:
    """Return a MusicXML file."""
    return _DOCTYPE + ElementTree.tostring(root, "utf-8")


def compressed(musicxml: bytes) -> bytes:
    """Return a MusicXML file as compressed MusicXML (.mxl). The same file gives the same bytes."""
    container = element("container", element("rootfiles", element("rootfile", full_path=_NAME)))
    archive = BytesIO()
    with ZipFile(archive, "w") as files:
        for name, content, method in (
            ("mimetype", b"application/vnd.recordare.musicxml", ZIP_STORED),
            ("META-INF/container.xml", ElementTree.tostring(container, "utf-8"), ZIP_DEFLATED),
            (_NAME, musicxml, ZIP_DEFLATED),
        ):
            files.writestr(ZipInfo(name), content, method)
    return archive.getvalue()


def direction(content: Element, placement: str, staff: int) -> Element:
    """Return a direction above or below a staff."""
    kind, number = element("direction-type", content), element("staff", staff)
    return element("direction", kind, number, placement=placement)


def harmony(chord: ChordSymbol, staff: int) -> Element:
    """Return a chord symbol above a staff."""
    return element(
        "harmony",
        _tone("root", chord.root),
        element("kind", _KINDS[chord.quality], text=chord.quality.replace("b", "\u266d")),
        _tone("bass", chord.bass) if chord.bass else None,
        element("staff", staff),
        placement="above",
    )


def _tone(tag: str, name: Name) -> Element:
    alter = element(f"{tag}-alter", name.alter) if name.alter else None
    return element(tag, element(f"{tag}-step", name.step), alter)


def set_offset(mark: Element, divisions: Fraction) -> None:
    """Move a direction or chord symbol later by ``divisions``."""
    if divisions:
        mark.insert(len(mark) - 1, element("offset", divisions))  # before the staff


def value_type(quarters: Fraction) -> tuple[int, int]:
    """Return the index in ``TYPES`` and the number of dots of a note value."""
    dots = quarters.numerator % 3 == 0
    plain = quarters * 2 / 3 if dots else quarters
    return _QUARTER - (plain.numerator.bit_length() - plain.denominator.bit_length()), int(dots)


def written_quarters(value: Value, quarters: Fraction) -> Fraction:
    """Return the written length of a value in quarters. In a tuplet, the value sounds shorter.
    ``quarters``: length of a beat."""
    ratio = Fraction(value.tuplet.actual, value.tuplet.normal) if value.tuplet else 1
    return (value.end - value.begin) * quarters * ratio


def beams(values: Sequence[Value], start: Fraction, quarters: Fraction, joined: bool) -> Beams:
    """Return the beams of a voice in one bar. One beam joins the notes of a beat. If ``joined``,
    beats are paired from the bar's start, and one beam joins each pair that contains only eighth
    notes, without rests or tuplets."""
    timed = [index for index, value in enumerate(values) if value.end > value.begin]

    def flag_count(value: Value) -> int:
        kind, _ = value_type(written_quarters(value, quarters))
        return max(0, kind - _QUARTER) if value.chord else 0

    flags = {index: flag_count(values[index]) for index in timed}

    def beat(index: int) -> int:
        return floor(values[index].begin - start)

    def is_simple(pair: Iterable[int]) -> bool:
        return joined and all(flags[index] == 1 and not values[index].tuplet for index in pair)

    out: dict[int, list[str]] = {}
    for _, two in groupby(timed, key=lambda index: beat(index) // 2):
        pair = list(two)
        groups = [pair] if is_simple(pair) else [list(g) for _, g in groupby(pair, key=beat)]
        for group in groups:
            _add_beams(out, group, flags)
    return out


def _add_beams(
    out: dict[int, list[str]], group: Sequence[int], flags: Mapping[int, int], level: int = 1
) -> None:
    """Add the beams of this level and of higher levels to notes that the level below joins."""
    for has_beam, run in groupby(group, key=lambda index: flags[index] >= level):
        own = list(run)
        has_flag = level == 1 and len(own) == 1  # a single note has a flag instead of a beam
        if not has_beam or has_flag:
            continue
        kinds = ["begin", *["continue"] * (len(own) - 2), "end"]
        if len(own) == 1:
            kinds = ["forward hook" if own[0] == group[0] else "backward hook"]
        for index, kind in zip(own, kinds, strict=True):
            out.setdefault(index, []).append(kind)
        if level < max(flags.values()):
            _add_beams(out, own, flags, level + 1)


class Accidentals:
    """Accidentals of a staff between two barlines. Call ``needed`` for each note in time order."""

    def __init__(self, fifths: int, repeated: bool = False) -> None:
        """Start without accidentals.

        Args:
            fifths: sharps of the key signature, or flats if negative.
            repeated: True to write an accidental at every note outside of the key.
        """
        self._repeated = repeated
        self._signature = {step: (fifths + 6 - index) // 7 for index, step in enumerate("FCGDAEB")}
        self._alters: dict[str, dict[int, int]] = {}

    def needed(self, name: Name) -> str | None:
        """Return the accidental that a note needs, or None. A note also needs an accidental if its
        step was altered differently in another octave."""
        octaves = self._alters.setdefault(name.step, {})
        in_key = self._signature[name.step]
        is_clear = name.octave in octaves or all(a == name.alter for a in octaves.values())
        needed = octaves.get(name.octave, in_key) != name.alter or not is_clear
        needed |= self._repeated and name.alter != in_key
        octaves[name.octave] = name.alter
        return _ACCIDENTALS[name.alter] if needed else None


@dataclass(frozen=True)
class NoteWriter:
    """Writes the notes of a staff.

    Attributes:
        quarters: length of a beat in quarters.
        divisions: number of units of duration per quarter.
        staff: number of the staff in its part, from 1.
        tablature: True to write frets, without accidentals.
        stems: True to draw stems, beams, ties and rests: not in tablature or free rhythm.
    """

    names: Names
    quarters: Fraction
    divisions: int
    staff: int
    tablature: bool
    stems: bool

    def notes(
        self,
        value: Value,
        voice: int,
        accidentals: Accidentals,
        beamed: Sequence[str],
        fills_bar: bool,
        hide_rest: bool,
    ) -> Iterator[Element]:
        """Yield the elements of a value: one for a rest, or one for each note of a chord."""
        chord = value.chord
        # Without ties, only the first value of a chord is written as notes.
        if chord is not None and not self.stems and value.begin > chord.onset:
            chord = None
        hidden = chord is None and (hide_rest or not self.stems)
        length = (value.end - value.begin) * self.quarters
        kind, dots = _FLAGGED, 0
        if length:
            kind, dots = value_type(written_quarters(value, self.quarters))
        tie = None if chord is None or not self.stems else value.tie
        ties = () if tie is None else ("stop", "start") if tie == "continue" else (tie,)
        for index, pitch in enumerate((None,) if chord is None else chord.pitches):
            name = accidental = None
            if chord is not None and pitch is not None:
                name = self.names[chord.onset, pitch]
                if not self.tablature and tie in (None, "start"):
                    accidental = accidentals.needed(name)
            note = element(
                "note",
                None if length else element("grace", slash="yes"),
                element("chord") if index else None,
                _pitch(name) if name else _rest(fills_bar),
                element("duration", length * self.divisions) if length else None,
                *(element("tie", type=end) for end in ties),
                element("voice", voice),
                None if fills_bar else element("type", TYPES[kind]),
                element("dot") if dots and not fills_bar else None,
                element("accidental", accidental) if accidental else None,
                _time_modification(value.tuplet) if value.tuplet else None,
                None if self.stems or chord is None else element("stem", "none"),
                element("staff", self.staff),
            )
            if hidden:
                note.set("print-object", "no")
            notations = [element("tied", type=end) for end in ties]
            if index == 0:
                note.extend(element("beam", w, number=n) for n, w in enumerate(beamed, 1))
                if value.mark:
                    hide = {"bracket": "no", "show_number": "none"} if self.tablature else {}
                    notations.append(element("tuplet", type=value.mark, **hide))
                if chord and value.staccato and tie in (None, "start") and self.stems:
                    notations.append(element("articulations", element("staccato")))
            if chord is not None and self.tablature:
                string, fret = chord.frets[index]
                strings = element("string", string), element("fret", fret)
                notations.append(element("technical", *strings))
            if notations:
                note.append(element("notations", *notations))
            yield note


def _rest(fills_bar: bool) -> Element:
    return element("rest", measure="yes") if fills_bar else element("rest")


def _pitch(name: Name) -> Element:
    alter = element("alter", name.alter) if name.alter else None
    octave = min(9, max(0, name.octave))  # MusicXML has no others
    return element("pitch", element("step", name.step), alter, element("octave", octave))


def _time_modification(group: Tuplet) -> Element:
    actual, normal = element("actual-notes", group.actual), element("normal-notes", group.normal)
    return element("time-modification", actual, normal)
