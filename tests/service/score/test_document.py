"""Tests of complete scores, opened with music21."""

import html
import re
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from service.score import sheet
from service.score.beats import BeatHints
from service.score.document import ScoreDocument, _finished
from service.score.live import LiveBeat
from service.score.part import Part
from service.score.quantise import QuantisedNote
from service.score.staves import OPEN
from service.upload.score import ScoreNote
from tests.service.score.music import as_notes, free_rhythm, tune

music21 = pytest.importorskip("music21", reason="reads scores back")
BEATS_S = 0.6 + np.arange(49) * 0.5


def parse(score: ScoreDocument) -> Any:
    return music21.converter.parseData(score.musicxml, format="musicxml")


def test_compressed_musicxml_is_readable_and_deterministic(tmp_path: Path) -> None:
    score = ScoreDocument(as_notes(tune(BEATS_S, 4), "flute"))
    for name in ("one.mxl", "two.mxl"):
        score.save(tmp_path / name)
    assert (tmp_path / "one.mxl").read_bytes() == (tmp_path / "two.mxl").read_bytes()
    (part,) = music21.converter.parse(tmp_path / "one.mxl").parts
    assert part.partName == "Flute"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("beats_per_bar", [3, 4])
def test_piano_score_has_full_bars_on_two_staves(beats_per_bar: int) -> None:
    score = ScoreDocument(as_notes(tune(BEATS_S, beats_per_bar), "piano"), title="Tune & more")
    opened = parse(score)
    assert opened.metadata.bestTitle == "Tune & more"
    # A direction with a sound would be a tempo, which verovio writes over high notes.
    assert score.musicxml.count(b"<direction ") == 1
    assert score.musicxml.count(b"</direction><sound tempo=") == 1
    upper, lower = opened.parts
    assert upper.recurse().getElementsByClass("TimeSignature").first().numerator == beats_per_bar
    assert len(upper.getElementsByClass("Measure")) == len(score.bars_s)
    assert all(
        measure.highestTime == pytest.approx(measure.barDuration.quarterLength)
        for part in (upper, lower)
        for measure in list(part.getElementsByClass("Measure"))[1:]
    )
    assert min(pitch.midi for pitch in lower.flatten().pitches) == 36


def test_titles_are_cleaned_and_undrawable_characters_reported() -> None:
    notes = as_notes(tune(BEATS_S, 4))
    score = ScoreDocument(notes, title="\x07Caf\udce9 \u03a9\u0436 \u611b\u611b")
    assert parse(score).metadata.bestTitle == "Caf\u00e9 \u03a9\u0436 \u611b\u611b"
    assert score.undrawable == "\u611b"
    assert score.pdf().startswith(b"%PDF")


@pytest.mark.parametrize(("length", "width"), [(46, 900), (140, None), (140, 2100), (5, None)])
def test_long_titles_fit_the_page(length: int, width: int | None) -> None:
    title = ("Sonata & Fugue, " * 9)[:length]
    score = ScoreDocument(as_notes(tune(BEATS_S, 4)), title=title)
    svg = _finished(score._engraved(width).renderToSVG(1))
    head = re.search('(?s)class="pgHead.*? x="([0-9]+)".*?size="([0-9]+)px">([^<]+)', svg)
    assert head is not None
    shown = html.unescape(head[3])
    assert title.startswith(shown.rstrip("\u2026"))
    assert 0.5 * int(head[2]) * len(shown) < 2 * int(head[1])
    assert int(head[2]) >= 300
    assert parse(score).metadata.bestTitle == title.strip()


def test_long_names_of_parts_are_abbreviated_after_the_first_system() -> None:
    score = ScoreDocument(
        [note for name in ("Second Violin", "Flute") for note in as_notes(tune(BEATS_S, 4), name)]
    )
    names = re.findall(b"<part-abbreviation>([^<]+)", score.musicxml)
    assert sorted(names) == [b"Flute", b"Second Vi."]


def test_parts_have_score_order() -> None:
    melody = tune(BEATS_S, 4)
    names = ["piano", "cello", "violin", "flute"]
    notes = [note for name in names for note in as_notes(melody, name)]
    parts = parse(ScoreDocument(notes)).parts
    assert [part.partName for part in parts][:3] == ["Flute", "Violin", "Cello"]


def test_named_parts_are_separate_from_high_to_low() -> None:
    """A part with a wide range has two staves."""
    rows = tune(BEATS_S, 4)
    rows = rows[rows[:, 2] > 57]
    notes = [*as_notes(rows - (0, 0, 12, 0), "Violin II"), *as_notes(rows, "Violin I\x07")]
    notes += as_notes(rows[:1] + (0, 0, 40, 0), "Bell")  # few notes, but not misclassified
    notes += as_notes(rows - (0, 0, 13, 0), "Keys")
    notes += as_notes(rows[:1] * (1, 1, 0, 1) + (0, 0, 14, 0), "Keys")
    parts = parse(ScoreDocument(notes + as_notes(rows, "cello"))).parts
    names = ["Bell", "Violin I", "Violin II", "Keys", "Keys", "Cello"]
    assert [part.partName for part in parts] == names


def test_named_part_is_written_for_its_instrument() -> None:
    names = {"plucked": "Lead", "clarinet": "Solo", None: "Oboe d'amore"}
    notes = [
        ScoreNote(**asdict(note), part=part)
        for instrument, part in names.items()
        for note in as_notes(tune(BEATS_S, 4) + (0, 0, 12, 0), instrument)
        if 58 < note.pitch < 90
    ]
    parts = parse(ScoreDocument(notes)).parts
    assert [part.partName for part in parts] == ["Oboe d'amore", "Solo", "Lead", "Lead"]
    assert parts[1].flatten().getElementsByClass("Instrument").first().transposition is not None
    assert isinstance(parts[3].recurse().getElementsByClass("Clef").first(), music21.clef.TabClef)


def test_short_end_after_a_barline_adds_no_bar() -> None:
    rows = np.array([(n / 2, n / 2 + 0.45, 60 + n, 80) for n in range(8)], float)
    rows[-1, 1] += 0.2
    score = ScoreDocument(as_notes(rows), BeatHints(bpm=120, beats_per_bar=4, first_downbeat_s=0))
    assert len(score.bars_s) == 2


def test_long_last_chord_adds_no_empty_bar() -> None:
    rows = [(0.5 + 0.6 * n, 1.04 + 0.6 * n, (60, 64, 67, 72)[n % 4], 80) for n in range(32)]
    rows += [(19.7, 19.7 + 0.6 * 4.2, pitch, 80) for pitch in (48, 60, 64)]
    score = ElementTree.fromstring(ScoreDocument(as_notes(np.array(rows))).musicxml)
    measures = score.findall("part/measure")
    assert all(measure.find("note/pitch") is not None for measure in measures)


def test_octaves_are_valid() -> None:
    extremes = as_notes(np.array([(1.0, 2.0, 5, 80), (2.0, 3.0, 127, 80)]), "saxophone")
    score = ElementTree.fromstring(ScoreDocument(extremes).musicxml)
    assert {octave.text for octave in score.iter("octave")} <= set("0123456789")


def test_barlines_of_long_bars_in_free_rhythm_are_in_silences() -> None:
    bars = [(Fraction(start), 12) for start in (0, 12, 24)]
    for onsets, expected in (((0, 8), set()), ((11, 20), set()), ((5, 14), {0})):
        notes = [QuantisedNote(60, Fraction(onset), Fraction(2)) for onset in onsets]
        assert sheet.silent_barlines({None: Part(notes, [80, 80])}, bars) == expected


def test_instruments_with_few_notes_have_no_part() -> None:
    melody = tune(BEATS_S, 4)
    notes = [*as_notes(melody, "clarinet"), *as_notes(melody - [0, 0, 12, 0], "cello")]
    notes += as_notes(melody[:1], "oboe")
    parts = parse(ScoreDocument(notes)).parts
    assert {part.partName for part in parts} == {"Clarinet", "Cello"}
    # Parts for a B flat clarinet are written a tone above the sounding pitch.
    clarinet = next(part for part in parts if part.partName == "Clarinet")
    assert clarinet.flatten().getElementsByClass("Instrument").first().transposition is not None
    # Three notes are no part, but every instrument of a short piece has one.
    guitar = [*as_notes(melody[:80], "plucked"), *as_notes(melody[:3], "voice")]
    assert {part.partName for part in parse(ScoreDocument(guitar)).parts} == {"Guitar"}
    assert len(parse(ScoreDocument(guitar[-20:])).parts) == 3  # voice, guitar and tablature


def test_guitar_score_has_a_tablature() -> None:
    notes = as_notes(tune(BEATS_S, 4), "plucked")
    score = ScoreDocument(notes)
    assert f"<staff-lines>{len(OPEN)}</staff-lines>".encode() in score.musicxml
    assert score.musicxml.count(b"<string>") == score.musicxml.count(b"<fret>") > 40
    staff, tab = parse(score).parts
    assert staff.partName == "Guitar"
    assert isinstance(tab.recurse().getElementsByClass("Clef").first(), music21.clef.TabClef)


@pytest.mark.parametrize("instrument", ["piano", "cello", "plucked"])
def test_clefs_change_for_long_passages(instrument: str) -> None:
    """A guitar has one clef."""
    rows = [
        (beat / 2, beat / 2 + 0.4, 40 + 25 * (20 <= beat < 40) + 2 * (beat % 4), 80)
        for beat in range(64)
    ]
    rows += [(start_s, end_s, 91, velocity) for start_s, end_s, _, velocity in rows[::4]]
    notes = as_notes(np.array(rows[: None if instrument == "piano" else 64]), instrument)
    hints = BeatHints(bpm=120, beats_per_bar=4, first_downbeat_s=0)
    lowest = parse(ScoreDocument(notes, hints)).parts[-1 if instrument == "piano" else 0]
    clefs = lowest.recurse().getElementsByClass("Clef")
    changes = {clef.getContextByClass("Measure").number: clef.sign for clef in clefs}
    high = {"piano": {6: "G", 11: "F"}, "cello": {6: "C", 11: "F"}, "plucked": {}}[instrument]
    assert changes == {1: "G" if instrument == "plucked" else "F", **high}


def test_free_rhythm_is_engraved_without_metre() -> None:
    score = ScoreDocument(as_notes(free_rhythm(np.random.default_rng(1).exponential(0.3, 120))))
    assert not score.analysis.steady
    assert b"free rhythm" in score.musicxml
    assert score.musicxml.count(b"<bar-style>none") > score.musicxml.count(b"<measure ") / 2
    assert not {b"<tie", b"<tuplet", b"<beam", b"<dot"} & set(re.findall(rb"<\w+", score.musicxml))
    assert score.musicxml.count(b"<stem>none") == 120
    assert b'<time print-object="no">' in score.musicxml
    assert score.analysis.tempo.bars == ()


def test_free_rhythm_has_barlines_at_silences() -> None:
    waits_s = np.random.default_rng(1).exponential(0.3, 120)
    waits_s[40] += 5
    waits_s[80] += 30
    score = ScoreDocument(as_notes(free_rhythm(waits_s), "flute"), BeatHints(chords=False))
    (part,) = parse(score).parts
    bars = list(part.getElementsByClass("Measure"))
    lines = [n for n, bar in enumerate(bars, 1) if bar.rightBarline is None]
    notes = [sum(len(note.pitches) for bar in bars[:line] for note in bar.notes) for line in lines]
    assert notes == [28, 40, 80]  # before each barline
    assert not score.analysis.steady


def test_long_rest_is_engraved_as_one_bar() -> None:
    first = tune(BEATS_S, 4)
    second = first + [60, 60, 0, 0]
    score = ScoreDocument(as_notes(np.concatenate([first, second]), "piano"))
    assert score.analysis.beats.bpm == pytest.approx(120, abs=1)
    assert score.musicxml.count(b"<multiple-rest>18</multiple-rest>") == 1
    upper, _ = parse(score).parts
    assert len(upper.getElementsByClass("Measure")) == 12 + 18 + 12
    assert len(score.bars_s) == 12 + 1 + 12
    page, _ = score.timed_svg(2100)
    assert page.count('class="measure') == 25


def test_long_piece_is_engraved_on_a_narrow_page() -> None:
    notes = tune(np.arange(0, 400, 0.5), 4)
    score = ScoreDocument(as_notes(notes, "piano"), BeatHints(bpm=120))
    page, times_s = score.timed_svg(500)
    assert page.count('class="measure') == len(score.bars_s) == 200
    assert len(times_s) == len(notes)
    assert page.startswith('<svg viewBox="0 0 500 ')


def test_engraved_notes_have_their_times_after_silence() -> None:
    steady = tune(BEATS_S, 4)
    waits_s = np.random.default_rng(1).exponential(0.3, 60)
    waits_s[40] += 5
    for notes in (np.concatenate([steady, steady + [60, 60, 0, 0]]), free_rhythm(waits_s)):
        score = ScoreDocument(as_notes(notes, "piano"))
        _, times_s = score.timed_svg(2100)
        onsets_s = sorted(onset_s for onset_s, _ in times_s.values())
        assert onsets_s == pytest.approx(sorted(notes[:, 0]), abs=0.1)


def test_missing_score_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "verovio", None)
    with pytest.raises(
        sheet.ScoreExtraMissingError, match=r"pip install 'rse-transcribe\[score\]'"
    ):
        ScoreDocument(as_notes(tune(BEATS_S, 4))).pdf()


def test_silence_and_held_notes_add_few_bars_in_free_rhythm() -> None:
    apart = ScoreDocument(as_notes(np.array([[0, 0.5, 60, 80], [3600, 3600.5, 64, 80]])))
    held = ScoreDocument(as_notes(np.array([[0, 86_000, 60, 80], [86_000, 86_001, 64, 80]])))
    for score in (apart, held):
        assert len(score.bars_s) <= 8
        assert score.bars_s[-1] > 3500
        assert score.musicxml.count(b"<step>E") == 1


def test_each_note_of_a_tablature_has_a_fret() -> None:
    rng = np.random.default_rng(0)
    notes = free_rhythm(rng.exponential(0.4, 60))
    notes[:, 2] = 40 + notes[:, 2] % 40
    notes[:, 1] = notes[:, 0] + rng.uniform(0.2, 3, len(notes))
    score = ScoreDocument(as_notes(notes, "plucked"))
    tab = parse(score).parts[1]
    assert not [note for note in tab.flatten().notes if note.tie]
    pitches = sum(len(note.pitches) for note in tab.flatten().notes)
    assert score.musicxml.count(b"<fret>") == pitches > 40


def test_score_without_notes_has_a_part() -> None:
    root = ElementTree.fromstring(ScoreDocument([]).musicxml)
    assert len(root.findall("part-list/score-part")) == 1
    assert len(root.findall("part/measure")) == 1


def test_first_bar_with_an_extra_beat_has_its_own_signature() -> None:
    """One beat of the first bar was missed, and its gap is filled. Another was counted twice."""
    places = [(0.0, 0), (0.5, 1), (1.5, 3), (2.0, 3), *((2.5 + n / 2, n % 4) for n in range(24))]
    beats = [LiveBeat(time_s, place, 4, 2) for time_s, place in places]
    rows = [(n / 2, n / 2 + 0.4, 60, 80) for n in range(28)]
    root = ElementTree.fromstring(ScoreDocument(as_notes(np.array(rows)), reported=beats).musicxml)
    first, second = root.findall("part/measure")[:2]
    assert (first.get("number"), first.get("implicit")) == ("1", None)
    assert [measure.findtext("attributes/time/beats") for measure in (first, second)] == ["5", "4"]
