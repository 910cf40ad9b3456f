"""A score of quantised notes as MusicXML, which music21 writes."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from itertools import chain
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from service.score.beats import Beats
from service.score.quantise import QuantisedNote
from service.score.spelling import Names, spelled
from service.score.staves import OPEN, Chord, hands, tab_line, voices

KEYBOARDS = (None, "piano", "electric piano", "harpsichord", "organ", "mallets")
PLAYED_BY = {  # classes that are no instrument, or whose usual one is another than music21's
    None: "piano",
    "plucked": "guitar",
    "saxophone": "alto saxophone",
    "brass": "trombone",
    "mallets": "vibraphone",
}
_FINGERING = re.compile(rb"<fingering[^>]*>(\d+)/(\d+)</fingering>")
_STRING_AND_FRET = rb"<string>\1</string><fret>\2</fret>"

Bars = Sequence[tuple[Fraction, int]]
Span = tuple[Fraction, Fraction, Chord | None]  # begin and end in a bar; None: a rest
Parts = Mapping[str | None, Sequence[QuantisedNote]]  # by instrument


class ScoreExtraMissing(ImportError):
    """What writes and engraves scores is not installed."""


def load(name: str) -> Any:
    """A library of the extra "score". Raises ScoreExtraMissing, which says what to install."""
    try:
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of what they import themselves
            return import_module(name)
    except ImportError as missing:
        words = f"a score needs {missing.name}: pip install 'rse-transcribe[score]'"
        raise ScoreExtraMissing(words) from missing
    except OSError as missing:  # a library of the system
        raise ScoreExtraMissing(f"a PDF needs libcairo2: {missing}") from missing


def bars_of(parts: Parts, beats: Beats) -> Bars:
    """First beat and number of beats of each bar that the notes need."""
    notes = [note for part in parts.values() for note in part]
    begin = min((note.onset for note in notes), default=Fraction(0))
    end = max((note.onset + note.length for note in notes), default=Fraction(1))
    return beats.bars(begin, end)


def musicxml(parts: Parts, beats: Beats, fifths: int, title: str, steady: bool) -> bytes:
    """A MusicXML document.

    Args:
        fifths: sharps of the key signature, or flats if negative.
        steady: False if no beat was found: a line above the score says so.
    """
    m21 = load("music21")
    score = m21.stream.Score()
    score.metadata = m21.metadata.Metadata(title=title or "Transcription", composer="")
    bars = bars_of(parts, beats)
    for instrument, notes in parts.items():
        staves = [
            _staff(instrument, own, clef, bars, beats, fifths)
            for own, clef in _staves(instrument, notes)
        ]
        for staff in staves:
            score.insert(0, staff)
        if len(staves) > 1:
            score.insert(0, m21.layout.StaffGroup(staves, symbol="brace", barTogether=True))
    if score.parts and (first := score.parts[0].getElementsByClass("Measure").first()):
        text = "no steady beat: free rhythm"
        if steady:  # as words: a metronome mark's glyph needs a music font on the viewer's side
            text = f"\u2669{'' if beats.subdivision == 2 else '.'} = {beats.bpm:.0f}"
        words = m21.expressions.TextExpression(text)
        words.placement, words.style.fontWeight = "above", "bold"
        first.insert(0, words)
    if not steady:  # no bars are made up: nothing divides what is only there for the writer
        for measure in score.recurse().getElementsByClass("Measure"):
            measure.rightBarline = m21.bar.Barline("none")
        for signature in score.recurse().getElementsByClass("TimeSignature"):
            signature.style.hideObjectOnPrint = True
    # music21 writes string and fret for a chord's first note alone, but a fingering for each, and a
    # tempo that sounds in a direction of its own, which MuseScore shows as another.
    document = bytes(m21.musicxml.m21ToXml.GeneralObjectExporter(score).parse())
    document = _FINGERING.sub(_STRING_AND_FRET, document)
    if steady:
        sound = f'<sound tempo="{beats.bpm * float(beats.quarters):.0f}"/></direction>'.encode()
        document = document.replace(b"</direction>", sound, 1)
    return document


def _staves(
    instrument: str | None, notes: Sequence[QuantisedNote]
) -> list[tuple[Sequence[QuantisedNote], Any]]:
    """The notes and the clef of each staff."""
    clef = load("music21").clef
    if instrument in KEYBOARDS:
        right, left = hands(notes)
        return [(right, clef.TrebleClef()), (left, clef.BassClef())]
    if instrument == "plucked":
        return [(notes, clef.Treble8vbClef()), (notes, clef.TabClef())]
    if instrument == "viola":
        return [(notes, clef.AltoClef())]
    high = int(np.median([note.pitch for note in notes])) >= 57
    return [(notes, clef.TrebleClef() if high else clef.BassClef())]


def _staff(
    instrument: str | None,
    notes: Sequence[QuantisedNote],
    clef: Any,
    bars: Bars,
    beats: Beats,
    fifths: int,
) -> Any:
    m21 = load("music21")
    tablature = isinstance(clef, m21.clef.TabClef)
    staff = m21.stream.PartStaff() if instrument in KEYBOARDS else m21.stream.Part()
    name = PLAYED_BY.get(instrument, instrument or "")
    player = m21.instrument.fromString(name)
    if tablature:
        player.partName = player.partAbbreviation = ""
    elif instrument:
        player.partName = (name if instrument == "plucked" else instrument).capitalize()
    staff.insert(0, player)
    names = spelled(notes, fifths)
    chords = [Chord(note.onset, note.length, (note.pitch,), note.grace) for note in notes]
    lines = [_by_bar(line, bars) for line in ([tab_line(chords)] if tablature else voices(chords))]
    nominal, size = beats.beats_per_bar, 0
    pickup = bars[0][1] != nominal
    for place, (start, count) in enumerate(bars):
        measure = m21.stream.Measure(number=place + (not pickup))
        if place == 0:
            measure.append(clef)
            if tablature:
                measure.insert(0, m21.layout.StaffLayout(staffLines=len(OPEN)))
            measure.append(m21.key.KeySignature(fifths))
            measure.paddingLeft = float((nominal - count) * beats.quarters)
        if size != (size := count if place else nominal):
            above, below = beats.signature(size)
            measure.insert(0, m21.meter.TimeSignature(f"{above}/{below}"))
        _fill(measure, [line[place] for line in lines], names, start, beats.quarters, tablature)
        staff.append(measure)
    if player.transposition is not None:
        staff.atSoundingPitch = True
        staff.toWrittenPitch(inPlace=True, preserveAccidentalDisplay=False)
    return staff


def _by_bar(line: Sequence[Chord], bars: Bars) -> list[list[Span]]:
    """What a voice does in each bar."""
    edges = [*(start for start, _ in bars), bars[-1][0] + bars[-1][1]]
    spans, now = list[Span](), edges[0]
    for chord in line:
        if now < chord.onset:
            spans.append((now, chord.onset, None))
        spans.append((chord.onset, chord.end, chord))
        now = chord.end
    out: list[list[Span]] = [[] for _ in bars]
    for begin, end, what in [*spans, (now, edges[-1], None)]:
        first = bisect_right(edges, begin) - 1
        for bar in range(first, max(bisect_left(edges, end), first + bool(what))):
            out[bar].append((max(begin, edges[bar]), min(end, edges[bar + 1]), what))
    return out


def _fill(
    measure: Any,
    lines: Sequence[Sequence[Span]],
    names: Names,
    start: Fraction,
    q: Fraction,
    tablature: bool,
) -> None:
    """Write the voices of a bar; later ones only if they have notes there."""
    m21 = load("music21")
    kept = [line for line in lines if line is lines[0] or any(chord for *_, chord in line)]
    for number, line in enumerate(kept, 1):
        voice = m21.stream.Voice(id=str(number)) if len(kept) > 1 else measure
        others = [span for other in kept for span in other if other is not line and span[2]]
        for begin, stop, chord in line:
            named = [names[chord.onset, pitch] for pitch in chord.pitches] if chord else []
            if chord and chord.grace:
                voice.insert((begin - start) * q, m21.note.Note(named[0]).getGrace())
            pieces = (_values(*piece, q) for piece in _pieces(begin, stop, start))
            for a, b in chain.from_iterable(pieces):
                if chord is None or (tablature and a > chord.onset):  # a fret is said once
                    element = m21.note.Rest()
                    # A rest would be in the way of tablature, and of another voice that sounds.
                    sounding = any(onset < b and end > a for onset, end, _ in others)
                    element.style.hideObjectOnPrint = tablature or sounding
                else:
                    one = m21.note.Note(named[0]) if len(named) == 1 else None
                    element = one or m21.chord.Chord(named)
                    if tablature:
                        fingering = m21.articulations.Fingering
                        element.articulations = [fingering(f"{s}/{f}") for s, f in chord.frets]
                    elif a > chord.onset:
                        element.tie = m21.tie.Tie("continue" if b < chord.end else "stop")
                    elif b < chord.end:
                        element.tie = m21.tie.Tie("start")
                element.quarterLength = (b - a) * q
                voice.insert((a - start) * q, element)
        if voice is not measure:
            measure.insert(0, voice)


def _pieces(begin: Fraction, end: Fraction, bar: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """A stretch cut at the beats it starts or ends within, so that readers see the beats."""
    last = bar + (end - bar).__floor__()  # the beat that it ends on or within
    while begin < end:
        offset, stop = begin - bar, end
        if offset.denominator != 1:
            following = bar + offset.__ceil__()
            if following < end and end - begin != 1:  # but a beat off the beat is one note
                stop = following
        elif begin < last < end and (end - last != Fraction(1, 2) or end - begin > 2):
            stop = last
        yield begin, stop
        begin = stop


def _values(begin: Fraction, end: Fraction, q: Fraction) -> Iterator[tuple[Fraction, Fraction]]:
    """Cut a stretch into single note values, with at most one dot. music21 would tie notes of other
    lengths itself, also in tablature, where a tied note has no fret."""
    while begin < end:
        quarters = (end - begin) * q
        while not _is_value(quarters):
            top = 1 << (quarters.numerator.bit_length() - 1)
            quarters = Fraction(top, quarters.denominator)
        yield begin, begin + quarters / q
        begin += quarters / q


def _is_value(quarters: Fraction) -> bool:
    """Return True if one note, plain, dotted or of a triplet, has this length."""
    above, below = quarters.numerator, quarters.denominator
    if below % 3 == 0:
        below //= 3
        return above & (above - 1) == 0
    if above % 3 == 0:
        above //= 3
    return above & (above - 1) == 0 and below & (below - 1) == 0
