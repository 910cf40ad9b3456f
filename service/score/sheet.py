"""A score of quantised notes as MusicXML, which music21 writes."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from service.score.beats import Beats
from service.score.quantise import QuantisedNote
from service.score.rhythm import Rhythm, Value
from service.score.spelling import Names, spelled
from service.score.staves import OPEN, hands, tab_line
from service.score.voices import Bars, voices

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
    one_line = instrument not in KEYBOARDS
    lines = [tab_line(notes)] if tablature else voices(notes, bars, one_line)
    written = [Rhythm(line, bars, beats).bars() for line in lines]
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
        _fill(measure, [line[place] for line in written], names, start, beats.quarters, tablature)
        staff.append(measure)
    if player.transposition is not None:
        staff.atSoundingPitch = True
        staff.toWrittenPitch(inPlace=True, preserveAccidentalDisplay=False)
    return staff


def _fill(
    measure: Any,
    lines: Sequence[Sequence[Value]],
    names: Names,
    start: Fraction,
    q: Fraction,
    tablature: bool,
) -> None:
    """Write the voices of a bar; the second one only if it has notes there."""
    m21 = load("music21")
    kept = [line for line in lines if line is lines[0] or any(value.chord for value in line)]
    for number, line in enumerate(kept, 1):
        voice = m21.stream.Voice(id=str(number)) if len(kept) > 1 else measure
        for value in line:
            if value.chord is None or (tablature and value.begin > value.chord.onset):
                # Rests would be in the way of tablature and of the upper voice.
                element = m21.note.Rest()
                element.style.hideObjectOnPrint = tablature or number > 1
            else:
                element = _note(value, names, tablature)
            if value.end > value.begin:
                element.duration = _duration(value, q, tablature)
            else:
                element = element.getGrace()
            voice.insert((value.begin - start) * q, element)
        if voice is not measure:
            measure.insert(0, voice)


def _note(value: Value, names: Names, tablature: bool) -> Any:
    """Return a note or chord without its duration."""
    m21, chord = load("music21"), value.chord
    assert chord is not None
    named = [names[chord.onset, pitch] for pitch in chord.pitches]
    element = m21.note.Note(named[0]) if len(named) == 1 else m21.chord.Chord(named)
    if tablature:
        fingering = m21.articulations.Fingering
        element.articulations = [fingering(f"{s}/{f}") for s, f in chord.frets]
    else:
        if value.tie:
            element.tie = m21.tie.Tie(value.tie)
        if value.staccato and value.tie in (None, "start"):
            element.articulations = [m21.articulations.Staccato()]
    return element


def _duration(value: Value, q: Fraction, tablature: bool) -> Any:
    duration = load("music21").duration
    quarters = (value.end - value.begin) * q
    if (group := value.tuplet) is None:
        return duration.Duration(quarters)
    unit = duration.Duration(group.length * q / group.normal)
    tuplet = duration.Tuplet(group.actual, group.normal, unit.type)
    tuplet.type = value.mark
    if tablature:
        tuplet.bracket, tuplet.tupletActualShow = False, None
    written = duration.Duration(quarters * group.actual / group.normal)
    written.appendTuplet(tuplet)
    return written
