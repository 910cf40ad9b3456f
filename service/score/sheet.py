"""A score of placed notes as MusicXML: music21 writes it, partitura spells the pitches."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from service.score.beats import Beats
from service.score.keys import Key
from service.score.quantise import Placed
from service.score.staves import Chord, hands, voices
from service.score.tab import OPEN, tab_line

KEYBOARDS = ("piano", "electric piano", "harpsichord", "organ", "mallets")
PLAYED_BY = {  # classes that are no instrument, or whose usual one is another than music21's
    None: "piano",
    "plucked": "guitar",
    "saxophone": "alto saxophone",
    "brass": "trombone",
    "mallets": "vibraphone",
}
_FINGERING = re.compile(rb"<fingering[^>]*>(\d+)/(\d+)</fingering>")
_STRING_AND_FRET = rb"<string>\1</string><fret>\2</fret>"
_LINES = f"<staff-lines>{len(OPEN)}</staff-lines>".encode()
_TUNING = "".join(
    f'<staff-tuning line="{line}"><tuning-step>{"CDEFGAB"[(pitch % 12 + 1) // 2]}</tuning-step>'
    f"<tuning-octave>{pitch // 12 - 1}</tuning-octave></staff-tuning>"
    for line, pitch in enumerate(reversed(OPEN), 1)  # none of them is sharp
).encode()


class ScoreExtraMissing(ImportError):
    """What writes and engraves scores is not installed."""


def load(name: str) -> Any:
    """A library of the extra "score". Raises ScoreExtraMissing, which says what to install."""
    from importlib import import_module

    try:
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of what they import themselves
            return import_module(name)
    except ImportError as missing:
        raise ScoreExtraMissing(
            f"a score needs {missing.name}: pip install 'rse-transcribe[score]'"
        ) from missing
    except OSError as missing:  # a library of the system
        raise ScoreExtraMissing(f"a PDF needs libcairo2: {missing}") from missing


@dataclass(frozen=True)
class PartNotes:
    """The notes of one instrument: MIDI pitches and where they stand."""

    instrument: str | None
    pitch: Sequence[int]
    placed: Sequence[Placed]


def musicxml(
    parts: Iterable[PartNotes], beats: Beats, key: Key, title: str = "", steady: bool = True
) -> bytes:
    """A MusicXML document.

    Args:
        steady: False if no beat was found: a line above the score says so.
    """
    stream = load("music21.stream")
    layout, meta = load("music21.layout"), load("music21.metadata")
    score = stream.Score()
    score.metadata = meta.Metadata(title=title or "Transcription", composer="")
    parts = list(parts)
    bars = bars_of(parts, beats)
    for part in parts:
        staves = _staves(part)
        written = [_staff(part, staff, lowest, bars, beats, key) for staff, lowest in staves]
        if part.instrument == "plucked":
            written.append(_staff(part, *staves[0], bars, beats, key, tablature=True))
        for staff in written:
            score.insert(0, staff)
        if len(written) > 1:
            score.insert(0, layout.StaffGroup(written, symbol="brace", barTogether=True))
    if score.parts and (first := score.parts[0].getElementsByClass("Measure").first()):
        text = "no steady beat: free rhythm"
        if steady:  # as words: a metronome mark's glyph needs a music font on the viewer's side
            text = f"\u2669{'' if beats.subdivision == 2 else '.'} = {beats.bpm:.0f}"
        words = load("music21.expressions").TextExpression(text)
        words.placement, words.style.fontWeight = "above", "bold"
        first.insert(0, words)
    if not steady:  # no bars are made up: nothing divides what is only there for the writer
        none = load("music21.bar").Barline
        for measure in score.recurse().getElementsByClass("Measure"):
            measure.rightBarline = none("none")
        for signature in score.recurse().getElementsByClass("TimeSignature"):
            signature.style.hideObjectOnPrint = True
    exporter = load("music21.musicxml.m21ToXml").GeneralObjectExporter(score)
    # music21 writes no tuning, string and fret for a chord's first note alone, but a fingering for
    # each, and a tempo that sounds in a direction of its own, which MuseScore shows as another.
    document = _FINGERING.sub(_STRING_AND_FRET, bytes(exporter.parse()))
    if steady:
        sound = f'<sound tempo="{beats.bpm * float(beats.quarters):.0f}"/></direction>'.encode()
        document = document.replace(b"</direction>", sound, 1)
    return document.replace(_LINES, _LINES + _TUNING)


def bars_of(parts: Sequence[PartNotes], beats: Beats) -> list[tuple[Fraction, int]]:
    """First beat and number of beats of each bar that the notes need."""
    notes = [note for part in parts for note in part.placed]
    begin = min((note.onset for note in notes), default=Fraction(0))
    end = max((note.onset + note.length for note in notes), default=Fraction(1))
    return beats.bars(begin, end)


def _staves(part: PartNotes) -> list[tuple[list[int], int]]:
    """Places in the part's notes for each staff, with the pitch that its clef follows."""
    if part.instrument in (None, *KEYBOARDS):
        right = hands(part.placed, part.pitch)
        upper = [place for place, is_right in enumerate(right) if is_right]
        lower = [place for place, is_right in enumerate(right) if not is_right]
        return [(upper, 60), (lower, 0)]
    everything = list(range(len(part.placed)))
    return [(everything, int(np.median(part.pitch)) if everything else 60)]


def _staff(
    part: PartNotes,
    members: Sequence[int],
    middle: int,
    bars: Sequence[tuple[Fraction, int]],
    beats: Beats,
    key: Key,
    tablature: bool = False,
) -> Any:
    stream, clef, m21key, meter = map(
        load, ("music21.stream", "music21.clef", "music21.key", "music21.meter")
    )
    kind = stream.PartStaff if part.instrument in (None, *KEYBOARDS) else stream.Part
    staff = kind()
    name = PLAYED_BY.get(part.instrument, part.instrument or "")
    instrument = load("music21.instrument").fromString(name)
    if tablature:
        instrument.partName = instrument.partAbbreviation = ""
    elif part.instrument:
        shown = name if part.instrument == "plucked" else part.instrument
        instrument.partName = shown.capitalize()
    staff.insert(0, instrument)
    own = [part.placed[place] for place in members]
    pitches = [part.pitch[place] for place in members]
    notes = [
        Chord(note.onset, note.length, (name,), (pitch,), note.grace)
        for note, pitch, name in zip(own, pitches, spelled(own, pitches, beats), strict=True)
    ]
    lines = [tab_line(notes)] if tablature else voices(notes)
    if tablature:
        sign = clef.TabClef()
    elif part.instrument == "plucked":
        sign = clef.Treble8vbClef()
    elif part.instrument == "viola":
        sign = clef.AltoClef()
    else:
        sign = clef.TrebleClef() if middle >= 57 else clef.BassClef()
    q = beats.quarters
    signature = None
    for number, (start, count) in enumerate(bars):
        nominal = number > 0 or count == beats.beats_per_bar
        measure = stream.Measure(number=number + 1 if bars[0][1] == beats.beats_per_bar else number)
        if number == 0:
            measure.append(sign)
            if tablature:
                measure.insert(0, load("music21.layout").StaffLayout(staffLines=len(OPEN)))
            measure.append(m21key.KeySignature(key.fifths))
        size = beats.beats_per_bar if number == 0 else count
        if size != signature:
            signature = size
            text = f"{size}/4" if beats.subdivision == 2 else f"{3 * size}/8"
            measure.insert(0, meter.TimeSignature(text))
        if not nominal:
            measure.paddingLeft = float((beats.beats_per_bar - count) * q)
        near = [_near(line, start, start + count) for line in lines]
        _fill(measure, near, start, start + count, q)
        staff.append(measure)
    if instrument.transposition is not None:
        staff.atSoundingPitch = True
        staff.toWrittenPitch(inPlace=True, preserveAccidentalDisplay=False)
    return staff


def _near(line: Sequence[Chord], start: Fraction, end: Fraction) -> Sequence[Chord]:
    """What of a voice may sound in a bar, and a chord at least: a long score has many bars."""
    first = bisect_left(line, start, key=lambda chord: chord.onset)
    last = bisect_left(line, end, key=lambda chord: chord.onset)
    return line[max(0, first - 2) : max(1, last)]  # a chord that sounds on, and a grace note


def _fill(
    measure: Any, lines: Sequence[Sequence[Chord]], start: Fraction, end: Fraction, q: Fraction
) -> None:
    """Write what of each voice sounds in a bar; later voices only if they have notes there."""
    note, tie = load("music21.note"), load("music21.tie")
    kept = [line for line in lines if line is lines[0] or _sounds(line, start, end)]
    for number, line in enumerate(kept, 1):
        voice = load("music21.stream").Voice(id=str(number)) if len(kept) > 1 else measure
        for begin, stop, chord in _spans(line, start, end):
            if chord and chord.grace:
                voice.insert((begin - start) * q, note.Note(chord.names[0]).getGrace())
            for a, b in _pieces(begin, stop, start):
                if chord is None or (chord.places and a > chord.onset):  # a fret is said once
                    element = note.Rest()
                    # A rest would be in the way of tablature, and of another voice that sounds.
                    others = (other for other in kept if other is not line)
                    tablature = bool(line and line[0].places)
                    hidden = tablature or any(_sounds(other, a, b) for other in others)
                    element.style.hideObjectOnPrint = hidden
                else:
                    element = load("music21.chord").Chord(chord.names)
                    if len(chord.names) == 1:
                        element = note.Note(chord.names[0])
                    before, after = a > chord.onset, b < chord.end
                    if chord.places:
                        fingering = load("music21.articulations").Fingering
                        element.articulations = [fingering(f"{s}/{f}") for s, f in chord.places]
                    elif before or after:
                        kinds = {(True, True): "continue", (True, False): "stop"}
                        element.tie = tie.Tie(kinds.get((before, after), "start"))
                element.quarterLength = (b - a) * q
                voice.insert((a - start) * q, element)
        if voice is not measure:
            measure.insert(0, voice)


def _sounds(line: Sequence[Chord], begin: Fraction, end: Fraction) -> bool:
    return any(chord.onset < end and chord.onset + chord.length > begin for chord in line)


def _spans(
    line: Sequence[Chord], start: Fraction, end: Fraction
) -> Iterator[tuple[Fraction, Fraction, Chord | None]]:
    """Begin and end of all that a voice does in a bar: its chords, and rests."""
    now = start
    for chord in line:
        begin, stop = max(chord.onset, start), min(chord.end, end)
        if begin < stop or (chord.grace and start <= chord.onset < end):
            if now < begin:
                yield now, begin, None
            yield begin, stop, chord
            now = max(now, stop)
    if now < end:
        yield now, end, None


def _pieces(begin: Fraction, end: Fraction, bar: Fraction) -> list[tuple[Fraction, Fraction]]:
    """A stretch cut at the beats it starts or ends within, so that readers see the beats."""
    out = []
    while begin < end:
        offset = begin - bar
        stop = end
        if offset.denominator != 1:
            following = bar + offset.__ceil__()
            if end > following and not (end - begin) == 1:
                stop = following
        elif (end - bar).denominator != 1 and (end - bar).__floor__() + bar > begin:
            rest = end - ((end - bar).__floor__() + bar)
            if rest not in (Fraction(1, 2),) or end - begin > 2:
                stop = bar + (end - bar).__floor__()
        out.append((begin, stop))
        begin = stop
    return out


def spelled(placed: Sequence[Placed], pitch: Sequence[int], beats: Beats) -> list[str]:
    """Names of the pitches as music21 takes them, such as "E-4", by partitura's estimate."""
    if not placed:
        return []
    analysis = load("partitura.musicanalysis")
    q = float(beats.quarters)
    array = np.array(
        [
            (float(note.onset) * q, float(note.length) * q, number, index)
            for index, (note, number) in enumerate(zip(placed, pitch, strict=True))
        ],
        dtype=[("onset_beat", "f4"), ("duration_beat", "f4"), ("pitch", "i4"), ("id", "i4")],
    )
    found = analysis.estimate_spelling(array)
    signs = {-2: "--", -1: "-", 0: "", 1: "#", 2: "##"}
    return [f"{row['step']}{signs[int(row['alter'])]}{int(row['octave'])}" for row in found]
