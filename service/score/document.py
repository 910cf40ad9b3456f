"""Renders a performance as a score in MusicXML, SVG or PDF.

verovio engraves MusicXML as SVG, and typst converts the pages to a PDF.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from html import unescape
from math import ceil
from pathlib import Path
from typing import Any, Protocol
from xml.sax.saxutils import escape

import numpy as np

from model.instruments import PROGRAMS
from service.protocol.command_line import write_atomically
from service.protocol.midi_file import PEDAL_INSTRUMENTS, FileNote
from service.protocol.titles import readable_title
from service.score import SCORES, sheet
from service.score.analysis import analyse
from service.score.beats import NO_BEAT_HINTS, BeatHints
from service.score.live import LiveBeat
from service.score.marks import presses
from service.score.musicxml import compressed
from service.score.part import Part
from service.score.quantise import quantise_notes

STRAY = 0.02  # minimum share of the notes; a detected instrument with fewer is misclassified
_MIN_NOTES, _MANY_NOTES = 4, 80  # minimum number of notes of an instrument, if there are many notes
_SCORE_ORDER = (
    *("flute", "oboe", "clarinet", "bassoon", "saxophone", "horn", "brass", "voice"),
    *("violin", "viola", "cello", "contrabass", "plucked", "mallets"),
    *("harpsichord", "organ", "electric piano", "piano"),
)  # instruments from the top of the page
_A4_MM = (210, 297)
_OPTIONS = {
    "pageWidth": 10 * _A4_MM[0],  # tenths of a mm
    "pageHeight": 10 * _A4_MM[1],
    "footer": "none",
    "breaks": "auto",
    "justifyVertically": True,
    "justificationBraceGroup": 0,  # the staves of a keyboard or guitar stay together
    "spacingBraceGroup": 10,
    "svgViewBox": True,
    "svgFormatRaw": True,  # line breaks between elements would appear as spaces in a title
    "smuflTextFont": "none",
}
# verovio writes the accidentals of chord symbols in its music font, which the web page and the
# PDF do not have. These accidentals are replaced by Unicode characters in the text font.
_ACCIDENTAL = re.compile('<tspan font-family="Leipzig"[^>]*>([\uea64-\uea66])</tspan>')
_UNICODE = {"\uea64": "\u266d", "\uea65": "\u266e", "\uea66": "\u266f"}
# Size of the page in hundredths of a mm, the units of the drawing.
_UNITS = re.compile('definition-scale"[^>]*viewBox="0 0 ([0-9]+) ([0-9]+)"')
_TEXT_SIZE = "405px"  # font size of verovio's text
# Title of the first page: start of its markup with half of the drawable width, font size, text.
_TITLE = re.compile('(?s)(class="pgHead.*? x="([0-9]+)".*?)"([0-9]+)px">([^<]+)')
_MIN_TITLE = 300  # minimum font size of a title; longer titles are shortened
_GLYPH = 0.55  # width of a character of a title, relative to the font size
# Latin, Greek, Cyrillic, punctuation, currencies and notes; other characters are undrawable.
_DRAWABLE = re.compile("[ -\u052f\u1e00-\u206f\u20a0-\u20bf\u2100-\u215f\u2669-\u266f]")
_TEXT_FONT = "Libertinus Serif"  # part of typst; the web page has a subset
# Limits of verovio's pages in tenths of a mm. The height of a single page shrinks to its content.
_MIN_WIDTH, _MAX_HEIGHT = 100, 60_000


class PedalTimes(Protocol):
    """Period in which the sustain pedal is down, in seconds."""

    @property
    def onset_s(self) -> float: ...
    @property
    def offset_s(self) -> float: ...


class ScoreDocument:
    """Score of a performance. SVG and PDF need the extra "score".

    A score has a part for each name in the notes' attribute ``part``, and for each ``instrument``
    of notes without one, which may also be the name of a part. All output raises
    ScoreTooLongError if there are too many bars.

    Attributes:
        analysis: beats, key and chords.
    """

    def __init__(
        self,
        notes: Sequence[FileNote],
        hints: BeatHints = NO_BEAT_HINTS,
        title: str = "",
        reported: Sequence[LiveBeat] | None = None,
        pedal: Iterable[PedalTimes] = (),
        *,
        is_live: bool = False,
    ) -> None:
        """Analyse the notes (see ``analyse``). ``pedal``: presses of the sustain pedal."""
        ended = [note for note in notes if note.offset_s is not None]
        self._notes = sorted(ended, key=lambda note: (note.onset_s, note.pitch))
        self._title, self._pedal = title, list(pedal)
        self.analysis = analyse(self._notes, hints, reported, is_live)

    @cached_property
    def _parts(self) -> sheet.Parts:
        names = [getattr(note, "part", "") or note.instrument for note in self._notes]
        counts = Counter(names)
        main = max(counts, key=lambda name: counts[name], default=None)
        few = max(STRAY * len(names), _MIN_NOTES if len(names) >= _MANY_NOTES else 0)
        stray = {n for n in counts if counts[n] < few and (n or "piano") in PROGRAMS}
        by_name: dict[str | None, list[FileNote]] = {}
        for note, name in zip(self._notes, names, strict=True):
            by_name.setdefault(main if name in stray else name, []).append(note)
        beats, steady = self.analysis.beats, self.analysis.steady
        parts: dict[str | None, Part] = {}
        for name, notes in sorted(by_name.items(), key=_place_on_page):
            onset_s, offset_s, pitch = (
                np.array([getattr(note, field) for note in notes])
                for field in ("onset_s", "offset_s", "pitch")
            )
            quantised = quantise_notes(onset_s, offset_s, pitch, beats, steady)
            instrument = _instrument_of(name, notes)
            parts[name] = Part(quantised, [note.velocity for note in notes], instrument)
            has_pedal = instrument in PEDAL_INSTRUMENTS or instrument not in PROGRAMS
            if steady and self._pedal and has_pedal:
                moves_s = np.array([(press.onset_s, press.offset_s) for press in self._pedal])
                moves = beats.position(moves_s.ravel()).reshape(-1, 2).tolist()
                onsets = [note.onset for note in quantised]
                parts[name] = parts[name]._replace(pedal=presses(moves, onsets))
        return parts

    @property
    def undrawable(self) -> str:
        """Characters of the title that the font lacks, so that a PDF shows empty boxes."""
        shown = readable_title(self._title)
        return "".join(dict.fromkeys(c for c in shown if not _DRAWABLE.match(c)))

    @cached_property
    def _sheet(self) -> sheet.Sheet:
        result = self.analysis
        parts = self._parts or {None: Part([], [])}  # a score must have a part
        return sheet.Sheet(parts, result.beats, result.key, result.steady, result.chords)

    @cached_property
    def musicxml(self) -> bytes:
        """MusicXML document."""
        return self._sheet.musicxml(self._title)

    @property
    def bars_s(self) -> list[float]:
        """Start of each drawn bar in seconds. A long rest is drawn as one bar."""
        beats = self.analysis.beats
        starts = [float(start) for start in self._sheet.drawn_bars]
        return [float(time_s) for time_s in beats.time(np.array(starts))]

    def timed_svg(self, width: int) -> tuple[str, dict[str, list[float]]]:
        """Return the SVG of one page, and the onset and offset in seconds of each note by the ID of
        its element. width: in tenths of a mm.

        Raises:
            ValueError: verovio rejects the score.
        """
        toolkit = self._engraved(width)
        beats = self.analysis.beats
        svg = toolkit.renderToSVG(1)
        measures = re.findall(r'<g id="([^"]+)" class="measure', svg)
        places = beats.position(np.array(self.bars_s)).tolist()
        bars = dict(zip(measures, places, strict=True))
        bar_beats = bar_quarters = 0.0  # start of the bar, in beats and in quarters
        times_s: dict[str, list[float]] = {}
        for event in toolkit.renderToTimemap({"includeMeasures": True}):
            if "measureOn" in event:
                bar_beats, bar_quarters = bars[event["measureOn"]], event["qstamp"]
            position = bar_beats + (event["qstamp"] - bar_quarters) / float(beats.quarters)
            time_s = float(beats.time(np.array(position)))
            times_s |= {note: [time_s, time_s] for note in event.get("on", [])}
            for note in event.get("off", []):
                times_s[note][1] = time_s
        return _finished(svg), times_s

    def _engraved(self, width: int | None) -> Any:
        toolkit = sheet.load("verovio").toolkit()
        toolkit.setOptions(_OPTIONS)
        if width is not None:
            # The music is scaled down to the minimum width, so that as much as possible fits.
            scale = ceil(100 * _MIN_WIDTH / width)
            single = {"pageWidth": width * scale // 100, "pageHeight": _MAX_HEIGHT, "scale": scale}
            single |= {"scaleToPageSize": True, "adjustPageHeight": True}
            toolkit.setOptions(single | {"justifyVertically": False})
        if not toolkit.loadData(self.musicxml.decode()):
            raise ValueError("verovio cannot engrave this score")
        return toolkit

    def pdf(self) -> bytes:
        """Return a PDF file of A4 pages.

        Raises:
            ValueError: verovio rejects the score.
        """
        toolkit = self._engraved(None)
        numbers = range(1, toolkit.getPageCount() + 1)
        pages = {f"{n}.svg": _finished(toolkit.renderToSVG(n)).encode() for n in numbers}
        images = "".join(f'#image("{name}", width: 100%)\n' for name in pages)
        width, height = _A4_MM
        head = "#set document(date: none)\n"  # so that the same notes give the same file
        head += f"#set page(width: {width}mm, height: {height}mm, margin: 0mm)\n"
        files = {"main.typ": (head + images).encode(), **pages}
        return bytes(sheet.load("typst").compile(files, ignore_system_fonts=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write PDF to ``.pdf``, compressed MusicXML to ``.mxl``, and MusicXML to ``.musicxml`` or
        ``.xml``. Raises ValueError for other suffixes, OSError, and for a PDF also ValueError (see
        ``pdf``) or ScoreExtraMissingError."""
        path = Path(path)
        match path.suffix.lower():
            case ".pdf":
                file = self.pdf()
            case ".mxl":
                file = compressed(self.musicxml)
            case ending if ending in SCORES:
                file = self.musicxml
            case ending:
                raise ValueError(f"the suffix must be one of {', '.join(SCORES)}, not {ending!r}")
        write_atomically(path, file)


def _instrument_of(name: str | None, notes: Sequence[FileNote]) -> str | None:
    """Return the instrument of a part, which may have another name."""
    return name if name in PROGRAMS else notes[0].instrument or name


def _place_on_page(part: tuple[str | None, list[FileNote]]) -> tuple[int, float]:
    """Return the sort key of a part: unknown instruments first, then the others; from high to low
    if the instrument is equal."""
    name, notes = part
    instrument = _instrument_of(name, notes) or "piano"
    order = _SCORE_ORDER.index(instrument) if instrument in PROGRAMS else -1
    return order, -sum(note.pitch for note in notes) / len(notes)


def _fitting_title(head: re.Match[str]) -> str:
    """Return the markup of a title whose font is small enough for the page."""
    start, half_width, font_size, text = head.groups()
    title, width = unescape(text), 2 * int(half_width)
    if len(title) > (longest := int(width / (_GLYPH * _MIN_TITLE))):
        title = title[: longest - 1].rstrip() + "\u2026"
    size = min(int(font_size), int(width / (_GLYPH * len(title))))
    return f'{start}"{size}px">{escape(title)}'


def _finished(svg: str) -> str:
    """Return an SVG of verovio with the size in tenths of a mm, with a title that fits, and with
    available text fonts."""
    if units := _UNITS.search(svg):
        size = f'viewBox="0 0 {int(units[1]) // 10} {int(units[2]) // 10}"'
        svg = re.sub('viewBox="[^"]*"', size, svg, count=1)
    svg = _TITLE.sub(_fitting_title, svg, count=1)
    svg = svg.replace('font-family="Times, serif"', f'font-family="{_TEXT_FONT}, Times, serif"')
    return _ACCIDENTAL.sub(
        lambda glyph: f'<tspan font-size="{_TEXT_SIZE}">{_UNICODE[glyph[1]]}</tspan>', svg
    )
