"""Writes quantised notes as a score in MusicXML."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from math import floor
from typing import Any
from warnings import catch_warnings, simplefilter
from xml.etree.ElementTree import Element

from model.instruments import LABELS, PROGRAMS
from service.protocol.titles import readable_title
from service.score.beats import Beats
from service.score.chord_symbols import ChordSymbol
from service.score.keys import Key, key_sections
from service.score.musicxml import direction, document, element
from service.score.part import TRANSPOSITIONS, Grid, Part, PartWriter
from service.score.voices import Bars

_TAIL = Fraction(1, 2)  # in beats: length of the end of a note for which no further bar is needed
_ABBREVIATIONS = {"piano": "Pno.", "violin": "Vln.", "viola": "Vla.", "cello": "Vc."}
_MAX_SHORT = 10  # maximum number of characters of the name before a system after the first
MIN_LONG_REST = 4  # minimum number of empty bars that are drawn as one long rest
MIN_SILENCE = 4  # minimum length, in beats of half a second, of a silence that gets a barline
# Maximum number of bars, including those of rests: 5 hours of 4/4 at 120 BPM, or 11 s of computing.
MAX_BARS = 10_000
Parts = Mapping[str | None, Part]  # by instrument, or by the name of a part without one


class ScoreTooLongError(ValueError):
    """A score has more than MAX_BARS bars."""


class ScoreExtraMissingError(ImportError):
    """A library that engraves scores is not installed."""


def load(name: str) -> Any:
    """Return a library of the extra "score". Raises ScoreExtraMissingError."""
    try:
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # the imports of the libraries raise some
            return import_module(name)
    except ImportError as missing:
        message = f"a score needs {missing.name}: pip install 'rse-transcribe[score]'"
        raise ScoreExtraMissingError(message) from missing


def bars_of(parts: Parts, beats: Beats, steady: bool) -> Bars:
    """Return the first beat and the number of beats of each bar that the notes need. A note needs
    the beat in which it starts. With a steady beat it also needs bars until ``_TAIL`` before its
    end."""
    notes = [note for part in parts.values() for note in part.notes]
    begin = min((note.onset for note in notes), default=Fraction(0))
    ends = [Fraction(floor(note.onset) + 1) for note in notes]
    if steady:
        ends += [note.onset + note.length - _TAIL for note in notes]
    return beats.bars(begin, max(ends, default=Fraction(1)))


def silent_barlines(parts: Parts, bars: Bars) -> set[int]:
    """Return the indices of the bars that end in a barline in free rhythm. In each silence of at
    least ``MIN_SILENCE`` beats, this is the last bar that ends during the silence, if any."""
    notes = sorted((n.onset, n.onset + n.length) for part in parts.values() for n in part.notes)
    ends = [start + count for start, count in bars]
    barlines, last_end = set(), notes[0][1] if notes else 0
    for onset, end in notes:
        bar = bisect_right(ends, onset) - 1  # the last bar that ends before the onset
        if bar >= 0 and ends[bar] >= last_end and onset - last_end >= MIN_SILENCE:
            barlines.add(bar)
        last_end = max(last_end, end)
    return barlines


class Sheet:
    """The parts of a score, with their bars."""

    def __init__(
        self,
        parts: Parts,
        beats: Beats,
        key: Key,
        steady: bool,
        chords: Sequence[ChordSymbol] = (),
    ) -> None:
        """Write the parts. Raises ScoreTooLongError.

        Args:
            key: key of the piece.
            steady: False if no beat was detected. A text above the score then states this.
            chords: chord symbols, written above the first part that does not transpose.
        """
        bars = bars_of(parts, beats, steady)
        if len(bars) > MAX_BARS:
            message = f"the score has {len(bars)} bars, with those of rests; at most {MAX_BARS}"
            raise ScoreTooLongError(f"{message} are supported: omit notes that are far apart")
        barlines = range(len(bars)) if steady else silent_barlines(parts, bars)
        notes = [note for part in parts.values() for note in part.notes]
        keys = key_sections(notes if steady else (), bars, key)
        self._parts = parts
        self._write(Grid(beats, bars, keys, key.minor, steady, barlines))
        # The written end of a long note may be earlier than that of its sound.
        filled = [n for n in range(len(bars)) if not all(w.is_empty(n) for w in self._writers)]
        if filled and filled[-1] + 1 < len(bars):
            self._write(self._grid._replace(bars=bars[: filled[-1] + 1]))
        for part, writer in zip(parts.values(), self._writers, strict=True):
            if part.instrument not in TRANSPOSITIONS:
                writer.add_chords(chords)
                break
        self._rests = self._long_rests() if steady else {}

    def _write(self, grid: Grid) -> None:
        self._grid = grid
        self._writers = [PartWriter(part, grid) for part in self._parts.values()]

    def _long_rests(self) -> dict[int, int]:
        """Return the first bar and the number of bars of each rest that is drawn as one bar."""
        bars, rests, first = self._grid.bars, {}, 0
        keys = dict(self._grid.keys)
        for bar, (start, count) in enumerate(bars):
            is_empty = all(writer.is_empty(bar) for writer in self._writers)
            if not is_empty:
                first = bar + 1  # the next rest starts in a later bar
                continue
            if count != bars[first][1] or start in keys:
                first = bar  # a new metre or key starts another rest
            if bar - first + 1 >= MIN_LONG_REST:
                rests[first] = bar - first + 1
        return rests

    @property
    def drawn_bars(self) -> list[Fraction]:
        """First beat of each bar that is drawn. A long rest counts as one bar."""
        hidden = {bar + n for bar, count in self._rests.items() for n in range(1, count)}
        return [start for bar, (start, _) in enumerate(self._grid.bars) if bar not in hidden]

    def musicxml(self, title: str) -> bytes:
        """Return a MusicXML document."""
        part_list, written = element("part-list"), []
        parts = zip(self._parts.items(), self._writers, strict=True)
        for number, ((name, part), writer) in enumerate(parts, 1):
            part_id = f"P{number}"
            is_bass_guitar = writer.clefs[0][0] == "Bass8vb"
            is_alone = len(self._writers) == 1
            program = 33 if is_bass_guitar else PROGRAMS.get(part.instrument or "", 0)
            part_list.append(_score_part(part_id, name, program, is_bass_guitar, is_alone))
            written.append(element("part", *writer.measures(self._rests), id=part_id))
        if written:
            first = written[0][0]
            index = [child.tag for child in first].index("attributes") + 1
            first[index:index] = _heading(self._grid)
        work = element("work", element("work-title", readable_title(title) or "Transcription"))
        return document(element("score-partwise", work, part_list, *written, version="4.0"))


def _heading(grid: Grid) -> Iterator[Element]:
    """Yield the tempo above the score as text, and the tempo of playback. A metronome mark would
    need a music font."""
    beats, text = grid.beats, "no steady beat: free rhythm"
    if grid.steady:
        text = f"\u2669{'' if beats.subdivision == 2 else '.'} = {beats.bpm:.0f}"
    yield direction(element("words", text, font_weight="bold", font_style="normal"), "above", 1)
    if grid.steady:  # not part of the direction: verovio would write its text over high notes
        yield element("sound", tempo=f"{beats.bpm * float(beats.quarters):.0f}")


def _score_part(
    part_id: str, name: str | None, program: int, is_bass_guitar: bool, is_alone: bool
) -> Element:
    name = name or "piano"
    if name in PROGRAMS:
        label = "Bass" if is_bass_guitar else LABELS.get(name, name).capitalize()
        short = _ABBREVIATIONS.get(name, f"{label[:2]}.")
    else:
        label = readable_title(name)
        short = label if len(label) <= _MAX_SHORT else f"{label[: _MAX_SHORT - 1].rstrip()}."
    abbreviation = None if is_alone else short
    instrument_id = f"{part_id}-I1"
    return element(
        "score-part",
        element("part-name", label),
        element("part-abbreviation", abbreviation) if abbreviation else None,
        element("score-instrument", element("instrument-name", label), id=instrument_id),
        element("midi-instrument", element("midi-program", program + 1), id=instrument_id),
        id=part_id,
    )
