"""Tests of the bars and beats of notes in MIDI files and scores, read by music21."""

from bisect import bisect_right

import numpy as np
import pytest

from service.notes.events import Note
from service.protocol.midi_file import midi_file
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from tests.service.score.music import as_notes

music21 = pytest.importorskip("music21", reason="reads scores back")

Position = tuple[int, float]  # bar number from the first downbeat, quarters in the bar


def scale(first_s: float, beat_s: float, count: int) -> list[Note]:
    """Return a rising and falling scale of ``count`` beats that starts at ``first_s``."""
    rows = []
    for beat in range(count):
        onset_s = first_s + beat * beat_s
        pitch = 60 + (0, 2, 4, 5, 7, 9, 11, 12, 11, 9, 7, 5, 4, 2)[beat % 14]
        rows.append((onset_s, onset_s + 0.9 * beat_s, pitch, 80))
    return as_notes(np.array(rows), "flute")


def positions(document: bytes, file_format: str, pickup: int) -> list[Position]:
    """Return the positions of the notes. Bar 0 contains the first note after the pickup notes."""
    keywords = {"quantizePost": False} if file_format == "midi" else {}
    opened = music21.converter.parseData(document, format=file_format, **keywords)
    (part,) = [part for part in opened.parts if part.recurse().notes][:1]
    bars = [float(bar.offset) for bar in part.getElementsByClass("Measure")]
    out = []
    for note in part.recurse().notes:
        if note.tie is None or note.tie.type == "start":
            at = round(2 * float(note.getOffsetInHierarchy(part))) / 2
            bar = bisect_right(bars, at) - 1
            out.append((bar, at - bars[bar]))
    origin = out[pickup][0]
    return [(bar - origin, at) for bar, at in out]


@pytest.mark.parametrize("first_s", [0.0, 3.7])
@pytest.mark.parametrize(("metre", "pickup"), [(4, 0), (4, 1), (3, 2), (2, 1), (5, 2), (7, 0)])
def test_midi_and_musicxml_have_notes_on_their_beats(
    first_s: float, metre: int, pickup: int
) -> None:
    beat_s = 0.6
    notes = scale(first_s, beat_s, pickup + 8 * metre)
    downbeat_s = first_s + pickup * beat_s
    hints = BeatHints(bpm=100, beats_per_bar=metre, first_downbeat_s=downbeat_s)
    score = ScoreDocument(notes, hints)
    assert score.analysis.steady
    expected = [divmod(beat, metre) for beat in range(len(notes) - pickup)]
    midi = midi_file(notes, [], {}, score.analysis.tempo)
    for document, file_format in ((midi, "midi"), (score.musicxml, "musicxml")):
        found = positions(document, file_format, pickup)
        assert found[pickup:] == expected
        assert all(bar == -1 for bar, _ in found[:pickup])
