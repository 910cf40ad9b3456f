"""Other programs that open MIDI files and scores see each note in its bar, on its beat."""

from bisect import bisect_right

import numpy as np
import pytest

from service.notes.events import Note
from service.protocol.midi_file import midi_file
from service.score.beats import BeatHints
from service.score.document import ScoreDocument
from tests.service.score.music import as_notes

music21 = pytest.importorskip("music21", reason="the extra score")

Place = tuple[int, float]  # number of a bar from the first downbeat, and quarters in the bar


def scale(first_s: float, beat_s: float, count: int) -> list[Note]:
    """Return a rising and falling scale of ``count`` beats, the first at ``first_s``."""
    rows = []
    for beat in range(count):
        onset_s = first_s + beat * beat_s
        pitch = 60 + (0, 2, 4, 5, 7, 9, 11, 12, 11, 9, 7, 5, 4, 2)[beat % 14]
        rows.append((onset_s, onset_s + 0.9 * beat_s, pitch, 80))
    return as_notes(np.array(rows), "flute")


def places(document: bytes, form: str, first: int) -> list[Place]:
    """Return bar and beat of the notes, as music21 reads them; bars count from that of the note
    number ``first``, which begins one."""
    keywords = {"quantizePost": False} if form == "midi" else {}
    opened = music21.converter.parseData(document, format=form, **keywords)
    (part,) = [part for part in opened.parts if part.recurse().notes][:1]
    bars = [float(bar.offset) for bar in part.getElementsByClass("Measure")]
    found = []
    for note in part.recurse().notes:
        if note.tie is None or note.tie.type == "start":
            at = round(2 * float(note.getOffsetInHierarchy(part))) / 2
            bar = bisect_right(bars, at) - 1
            found.append((bar, at - bars[bar]))
    origin = found[first][0]
    return [(number - origin, at) for number, at in found]


@pytest.mark.parametrize("first_s", [0.0, 0.3, 3.7])
@pytest.mark.parametrize(("metre", "pickup"), [(4, 0), (4, 1), (3, 2), (2, 1), (5, 2), (7, 0)])
def test_readers_of_midi_and_musicxml_agree(first_s: float, metre: int, pickup: int) -> None:
    beat_s = 0.6
    notes = scale(first_s, beat_s, pickup + 8 * metre)
    down_s = first_s + pickup * beat_s
    hints = BeatHints(bpm=100, beats_per_bar=metre, first_downbeat_s=down_s)
    score = ScoreDocument(notes, hints)
    assert score.analysis.steady
    true = [divmod(beat - pickup, metre) for beat in range(len(notes))]
    read = places(midi_file(notes, [], {}, score.analysis.tempo), "midi", pickup)
    assert read[pickup:] == true[pickup:]
    engraved = places(score.musicxml, "musicxml", pickup)
    assert engraved[pickup:] == true[pickup:]
    for found in (read, engraved):
        assert all(bar == -1 for bar, _ in found[:pickup])
