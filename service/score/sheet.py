"""A score of quantised notes as MusicXML, which music21 writes."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

from service.score.beats import Beats
from service.score.marks import Press, best_clef, dynamics, octave_lines
from service.score.quantise import QuantisedNote
from service.score.rhythm import Rhythm, Value
from service.score.spelling import Names, spelled
from service.score.staves import OPEN, hands, tab_line
from service.score.voices import Bars, Chord, voices

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
_PEDAL = re.compile(rb"<words[^>]*>pedal (start|stop)</words>")
USUAL_CLEFS = {  # of instruments that read others than treble and bass; the first is preferred
    "plucked": ("Treble8vb", "Bass8vb"),
    "viola": ("Alto", "Treble"),
    "cello": ("Bass", "Tenor"),
    "contrabass": ("Bass",),
    "bassoon": ("Bass", "Tenor"),
    "voice": ("Treble", "Treble8vb", "Bass"),
}


class Part(NamedTuple):
    """Notes of an instrument with their velocities, and presses of the pedal."""

    notes: Sequence[QuantisedNote]
    velocities: Sequence[int]
    pedal: Sequence[Press] = ()


Parts = Mapping[str | None, Part]  # by instrument


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


def bars_of(parts: Parts, beats: Beats) -> Bars:
    """First beat and number of beats of each bar that the notes need."""
    notes = [note for part in parts.values() for note in part.notes]
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
    title = "".join(filter(str.isprintable, title))  # XML has no control characters
    score = m21.stream.Score()
    score.metadata = m21.metadata.Metadata(title=title or "Transcription", composer="")
    bars = bars_of(parts, beats)
    for instrument, part in parts.items():
        staves = [
            _staff(instrument, own, clef, bars, beats, fifths)
            for own, clef in _staves(instrument, part.notes)
        ]
        for staff in staves:
            score.insert(0, staff)
        if len(staves) > 1:
            score.insert(0, m21.layout.StaffGroup(staves, symbol="brace", barTogether=True))
        _add_marks(staves, part, bars, beats.quarters)
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
    document = _PEDAL.sub(rb'<pedal type="\1" line="yes" sign="no"/>', document)
    if steady:
        sound = f'<sound tempo="{beats.bpm * float(beats.quarters):.0f}"/></direction>'.encode()
        document = document.replace(b"</direction>", sound, 1)
    return document


def _staves(
    instrument: str | None, notes: Sequence[QuantisedNote]
) -> list[tuple[Sequence[QuantisedNote], str]]:
    """Return the notes and the clef of each staff."""
    if instrument in KEYBOARDS:
        staves = zip(hands(notes), (("Treble", "Bass"), ("Bass", "Treble")), strict=True)
        return [(own, best_clef([note.pitch for note in own], clefs)) for own, clefs in staves]
    clefs = USUAL_CLEFS.get(instrument or "", ("Treble", "Bass"))
    clef = best_clef([note.pitch for note in notes], clefs)
    guitar = instrument == "plucked" and clef == "Treble8vb"
    return [(notes, clef), (notes, "Tab")] if guitar else [(notes, clef)]


def _staff(
    instrument: str | None,
    notes: Sequence[QuantisedNote],
    clef: str,
    bars: Bars,
    beats: Beats,
    fifths: int,
) -> Any:
    m21 = load("music21")
    tablature = clef == "Tab"
    staff = m21.stream.PartStaff() if instrument in KEYBOARDS else m21.stream.Part()
    name = PLAYED_BY.get(instrument, instrument or "")
    player = m21.instrument.fromString(name)
    if tablature:
        player.partName = player.partAbbreviation = ""
    elif instrument:
        player.partName = (name if instrument == "plucked" else instrument).capitalize()
    if clef == "Bass8vb":
        player.partName = player.partAbbreviation = "Bass"
    staff.insert(0, player)
    names = spelled(notes, fifths)
    lines = [tab_line(notes)] if tablature else voices(notes, bars, instrument not in KEYBOARDS)
    written = [Rhythm(line, bars, beats).bars() for line in lines]
    nominal, size = beats.beats_per_bar, 0
    pickup = bars[0][1] != nominal
    elements: list[tuple[Chord, Any]] = []  # of the first voice
    for place, (start, count) in enumerate(bars):
        measure = m21.stream.Measure(number=place + (not pickup))
        if place == 0:
            measure.append(getattr(m21.clef, f"{clef}Clef")())
            if tablature:
                measure.insert(0, m21.layout.StaffLayout(staffLines=len(OPEN)))
            measure.append(m21.key.KeySignature(fifths))
            measure.paddingLeft = float((nominal - count) * beats.quarters)
            if pickup:
                measure.showNumber = m21.stream.enums.ShowNumber.NEVER
        if size != (size := count if place else nominal):
            above, below = beats.signature(size)
            measure.insert(0, m21.meter.TimeSignature(f"{above}/{below}"))
        bar = [line[place] for line in written]
        elements += _fill(measure, bar, names, start, beats.quarters, tablature)
        staff.append(measure)
    measure.rightBarline = m21.bar.Barline("final")
    if player.transposition is not None:
        staff.atSoundingPitch = True
        staff.toWrittenPitch(inPlace=True, preserveAccidentalDisplay=False)
    elif not tablature:
        for kind, chords in octave_lines(lines[0], clef):
            if not any(chords[0].onset <= other.onset < chords[-1].end for other in lines[1]):
                spanned = [element for chord, element in elements if chord in chords]
                staff.insert(0, m21.spanner.Ottava(spanned, type=kind, transposing=False))
    return staff


def _add_marks(staves: Sequence[Any], part: Part, bars: Bars, q: Fraction) -> None:
    """Write dynamics below the first staff, and the pedal below the last one."""
    m21 = load("music21")
    words = m21.expressions.TextExpression
    levels = dynamics([note.onset for note in part.notes], part.velocities, bars)
    marks = [(at, 0, m21.dynamics.Dynamic(level)) for at, level in levels.items()]
    starts = [start for start, _ in bars]
    for press in part.pedal:
        down, up = max(press.down, starts[0]), min(press.up, starts[-1] + bars[-1][1])
        if down < up:
            marks += [(down, -1, words("pedal start")), (up, -1, words("pedal stop"))]
    measures = [list(staff.getElementsByClass("Measure")) for staff in staves]
    for at, staff, mark in marks:
        place = bisect_right(starts, at) - 1
        measures[staff][place].insert((at - starts[place]) * q, mark)


def _fill(
    measure: Any,
    lines: Sequence[Sequence[Value]],
    names: Names,
    start: Fraction,
    q: Fraction,
    tablature: bool,
) -> list[tuple[Chord, Any]]:
    """Write the voices of a bar; the second one only if it has notes there. Return the chords of
    the first voice with the elements that were written."""
    m21 = load("music21")
    written = []
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
                if number == 1:
                    written.append((value.chord, element))
            if value.end > value.begin:
                element.duration = _duration(value, q, tablature)
            else:
                element = element.getGrace()
            voice.insert((value.begin - start) * q, element)
        if voice is not measure:
            measure.insert(0, voice)
    return written


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
