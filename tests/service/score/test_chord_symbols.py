"""Tests of the chord symbols of scores and MIDI files."""

import io
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import mido
import numpy as np
import pytest

from service.protocol.midi_file import midi_file
from service.score.analysis import Analysis, analyse
from service.score.beats import BeatHints, Beats
from service.score.chord_symbols import find_chords
from service.score.document import ScoreDocument
from service.score.keys import Key
from tests.service.score.music import as_notes, free_rhythm

BEATS = Beats(np.linspace(0.0, 32.0, 65), np.arange(65) % 4, 4, 2, 1.0)


def bars(*chords: str) -> np.ndarray:
    """Return notes [notes, 4] of one chord of MIDI pitches per bar, repeated on each beat."""
    return np.array(
        [
            (2 * bar + beat / 2, 2 * bar + beat / 2 + 0.4, int(pitch), 70)
            for bar, chord in enumerate(chords)
            for beat in range(4)
            for pitch in chord.split()
        ],
        float,
    )


def names(notes: np.ndarray, fifths: int = 0) -> list[tuple[int, str]]:
    return [(chord.beat, chord.name) for chord in find_chords(notes, BEATS, fifths, False)]


@pytest.mark.parametrize(
    ("pitches", "fifths", "name"),
    [
        ("48 64 67 72", 0, "C"),
        ("45 60 64 69", 0, "Am"),
        ("43 59 62 65", 0, "G7"),
        ("50 60 65 69", 0, "Dm7"),
        ("48 64 67 71", 0, "Cmaj7"),
        ("47 62 65 69", 0, "Bm7b5"),
        ("47 62 65 68", 3, "Bdim7"),
        ("43 60 62 67", 0, "Gsus4"),
        ("45 60 65 69", 0, "F/A"),
        ("43 60 64 67", 0, "C/G"),
        ("49 65 68 73", -5, "Db"),
        ("49 65 68 73", 5, "C#"),
        ("46 61 65 70", -3, "Bbm"),
    ],
)
def test_chords_have_their_names(pitches: str, fifths: int, name: str) -> None:
    assert names(bars(pitches), fifths) == [(0, name)]


def test_chord_has_the_name_that_suits_its_passage() -> None:
    """The key of the piece is D major, but this passage is in C minor."""
    passage = bars("48 63 67 72", "53 60 65 68", "51 67 70 75", "48 63 67 72")
    assert names(passage, 2) == [(0, "Cm"), (4, "Fm"), (8, "Eb"), (12, "Cm")]


def test_only_changes_of_chord_have_symbols() -> None:
    c, f, g = "48 64 67 72", "53 60 65 69", "43 59 62 65"
    assert names(bars(c, c, f, g, c)) == [(0, "C"), (8, "F"), (12, "G7"), (16, "C")]


def test_passing_notes_do_not_change_the_chord() -> None:
    scale = [(beat / 2, beat / 2 + 0.25, 72 + step, 80) for beat, step in enumerate((0, 2, 4, 5))]
    held = [(0.0, 2.0, pitch, 70) for pitch in (48, 60, 64, 67)]
    assert names(np.array(sorted(held + scale))) == [(0, "C")]


@pytest.mark.parametrize(("beats", "length_s"), [(4, 0.45), (8, 0.9)], ids=["detached", "legato"])
def test_melody_before_the_first_chord_has_no_symbol(beats: int, length_s: float) -> None:
    melody = [(beat / 2, beat / 2 + length_s, 67 + beat % 5, 80) for beat in range(beats)]
    chords = bars("48 64 67 72", "53 60 65 69") + [beats / 2, beats / 2, 0, 0]
    assert names(np.array([*melody, *chords.tolist()])) == [(beats, "C"), (beats + 4, "F")]


def test_alternating_bass_is_not_an_inversion() -> None:
    rows = [(t / 2, t / 2 + 0.4, 48 if t % 4 == 0 else 43, 80) for t in (0, 2, 4, 6)]
    rows += [(t / 2, t / 2 + 0.4, pitch, 80) for t in (1, 3, 5, 7) for pitch in (55, 60, 64)]
    assert names(np.array(sorted(rows), float)) == [(0, "C")]


def test_melody_has_chords_only_on_request() -> None:
    line = np.array([(t / 2, t / 2 + 0.5, 60 + p, 80) for t, p in enumerate((0, 4, 7, 12) * 4)])
    assert not find_chords(line, BEATS, 0, minor=False)
    assert [chord.name for chord in find_chords(line, BEATS, 0, False, enabled=True)] == ["C"]
    assert not find_chords(bars("48 64 67 72"), BEATS, 0, False, enabled=False)


@pytest.mark.parametrize("enabled", [None, True])
def test_notes_of_zero_length_have_no_chords(enabled: bool | None) -> None:
    notes = np.array([[1.0, 1.0, 60, 64]])
    assert not find_chords(notes, BEATS, 0, minor=False, enabled=enabled)


def test_chord_symbols_ascend_and_change() -> None:
    for seed in range(5):
        notes = free_rhythm(np.random.default_rng(seed).exponential(0.1, 80))
        chords = find_chords(notes, BEATS, seed - 2, minor=bool(seed % 2), enabled=True)
        assert all(a.beat < b.beat and a.name != b.name for a, b in pairwise(chords))


def test_long_gap_between_chords_has_no_symbols() -> None:
    hours = np.array([(t, t + 5_000, p, 80) for t in (0, 10_000) for p in (60, 64, 67)], float)
    chords = analyse(as_notes(hours), BeatHints(bpm=400)).chords_json
    assert [chord["name"] for chord in chords] == ["C"]


@pytest.mark.parametrize("bends", [None, (10.0, 20.0)])
def test_midi_files_have_chord_markers(bends: tuple[float, ...] | None) -> None:
    rows = bars("48 64 67 72", "53 60 65 69")
    notes = [replace(note, bends=bends) for note in as_notes(rows)]
    chords = find_chords(rows, BEATS, 0, minor=False)
    tempo = Analysis(BEATS, Key(0, minor=False), True, chords).tempo
    file = mido.MidiFile(file=io.BytesIO(midi_file(notes, [], {}, tempo)))
    now, markers = 0, []
    for message in file.tracks[0]:
        now += message.time
        if message.type == "marker":
            markers.append((now / file.ticks_per_beat, message.text))
    assert markers == [(0, "C"), (4, "F")]
    pitches = sorted(m.note for t in file.tracks for m in t if m.type == "note_on" and m.velocity)
    assert pitches == sorted(note.pitch for note in notes)


def test_chords_are_engraved_above_the_first_staff() -> None:
    rows = bars("43 59 62 65", "46 61 65 70", "45 60 65 69", "47 62 65 69")
    score = ScoreDocument(as_notes(rows, "piano"), BeatHints(bpm=120, beats_per_bar=4))
    root = ElementTree.fromstring(score.musicxml)
    harmonies = []
    for bar, measure in enumerate(root.iterfind("part/measure")):
        for chord in measure.iterfind("harmony"):
            assert chord.findtext("staff") == "1"
            tags = "root/root-step root/root-alter kind bass/bass-step".split()
            harmonies.append((bar, *(chord.findtext(tag) for tag in tags)))
    assert harmonies == [
        (0, "G", None, "dominant", None),
        (1, "B", "-1", "minor", None),
        (2, "F", None, "major", "A"),
        (3, "B", None, "half-diminished", None),
    ]
    svg = ElementTree.fromstring(score.timed_svg(1500)[0])
    symbols = [g for g in svg.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "harm"]
    assert ["".join(symbol.itertext()) for symbol in symbols] == [
        "G7",
        "B\u266dm",
        "F/A",
        "Bm7\u266d5",
    ]
    assert "Leipzig" not in ElementTree.tostring(svg, "unicode")  # no music font in text


def test_chords_are_placed_above_a_part_in_concert_pitch() -> None:
    chord = bars("60 64 67 72")
    notes = [*as_notes(chord, "clarinet"), *as_notes(chord, "violin")]
    root = ElementTree.fromstring(ScoreDocument(notes, BeatHints(bpm=120)).musicxml)
    assert [len(part.findall("measure/harmony")) for part in root.iterfind("part")] == [0, 1]


def test_chord_without_a_bass_has_no_slash() -> None:
    notes = bars("53 57 60")  # F major, too short and off the beat
    notes[:, 0] += 0.2
    notes[:, 1] = notes[:, 0] + 0.04
    (chord,) = find_chords(notes, BEATS, -1, minor=False, enabled=True)
    assert chord.name == "F"
