"""MIDI files: the notes that come out of a reader are those that went in."""

import io
from pathlib import Path

import mido
import pretty_midi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.instruments import PROGRAMS
from service.notes.events import Note, PedalPress
from service.notes.score import midi_file
from service.protocol.midi_file import PEDALLED, TICKS_PER_BEAT, Tempo

TICK_S = 0.5 / TICKS_PER_BEAT


@st.composite
def performances(draw: st.DrawFn) -> list[Note]:
    """Notes that no two of a pitch overlap; some touch."""
    notes: list[Note] = []
    for pitch in draw(st.lists(st.integers(0, 127), unique=True, max_size=4)):
        time_s = 0.0
        for _ in range(draw(st.integers(0, 4))):
            onset_s = time_s + draw(st.sampled_from([0.0, 0.0116, 1.7]))
            time_s = onset_s + draw(st.floats(0.005, 100))
            velocity = draw(st.integers(1, 127))
            notes.append(Note(len(notes), pitch, velocity, 1.0, 0, 0, onset_s, time_s))
    return notes


@settings(max_examples=60)
@given(performances())
def test_readers_find_the_same_notes(notes: list[Note]) -> None:
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi_file(notes)))
    found = [note for instrument in opened.instruments for note in instrument.notes]
    found.sort(key=lambda n: (round(n.start, 4), n.pitch))
    assert len(found) == len(notes)
    for got, note in zip(found, sorted(notes, key=_by_tick), strict=True):
        assert (got.pitch, got.velocity) == (note.pitch, note.velocity)
        assert got.start == pytest.approx(note.onset_s, abs=0.51 * TICK_S)
        assert got.end == pytest.approx(note.offset_s, abs=0.51 * TICK_S)


def _by_tick(note: Note) -> tuple[float, int]:
    return round(round(note.onset_s / TICK_S) * TICK_S, 4), note.pitch


def test_the_file_is_deterministic_and_plain() -> None:
    notes = [
        Note(0, 60, 100, 0.9, 0, 10, 0.0, 0.5),
        Note(1, 60, 90, 0.9, 10, 20, 0.5, 0.500001),  # struck again, shorter than a tick
    ]
    data = midi_file(notes)
    assert data == midi_file(reversed(notes))
    opened = mido.MidiFile(file=io.BytesIO(data))
    tempo, track = opened.tracks
    assert [message.type for message in tempo] == ["set_tempo", "time_signature", "end_of_track"]
    assert [(m.note, m.velocity, m.time) for m in track if m.type == "note_on"] == [
        (60, 100, 0),
        (60, 0, TICKS_PER_BEAT),
        (60, 90, 0),
        (60, 0, 1),
    ]


def test_a_file_without_instruments_has_the_pedal() -> None:
    note = Note(0, 60, 100, 0.9, 0, 10, 0.0, 0.5)
    opened = mido.MidiFile(file=io.BytesIO(midi_file([note], [PedalPress(0.25, 1.0)])))
    moves = [(m.control, m.value) for m in opened.tracks[1] if m.type == "control_change"]
    assert moves == [(64, 127), (64, 0)]


def test_beats_bars_and_key_are_written_and_times_stay() -> None:
    notes = [Note(0, 60, 100, 0.9, 0, 10, 1.03, 2.0)]
    tempo = Tempo((0.5, 1.0, 1.6), 1.0, ((0, 1, 4), (1, 3, 4)), "F#m")
    opened = pretty_midi.PrettyMIDI(io.BytesIO(midi_file(notes, tempo=tempo)))
    assert opened.instruments[0].notes[0].start == pytest.approx(1.03, abs=0.001)
    signatures = [(s.numerator, round(s.time, 3)) for s in opened.time_signature_changes]
    assert signatures == [(4, 0.0), (1, 0.5), (3, 1.0)]  # the first is pretty_midi's own
    assert [key.key_number for key in opened.key_signature_changes] == [12 + 6]
    assert opened.get_beats()[1:4] == pytest.approx([0.5, 1.0, 1.6], abs=1e-3)


@pytest.mark.parametrize("hours", [1, 3, 10])
@pytest.mark.parametrize("bpm", [20, 120, 400])
def test_readers_open_the_longest_recordings(hours: float, bpm: float) -> None:
    end_s = 3600.0 * hours
    note = Note(0, 60, 100, 0.9, 0, 10, end_s - 0.5, end_s)
    data = midi_file([note], tempo=Tempo((0.0, 60 / bpm)))
    (found,) = pretty_midi.PrettyMIDI(io.BytesIO(data)).instruments[0].notes
    assert (found.start, found.end) == pytest.approx((end_s - 0.5, end_s), abs=0.01)


@pytest.mark.parametrize("names", [["piano"], ["violin", "violin", "viola", "cello"], [None]])
def test_music21_imports_a_piano_a_quartet_and_notes_without_names(
    names: list[str | None], tmp_path: Path
) -> None:
    music21 = pytest.importorskip("music21")
    notes = [
        Note(i, 60 + 2 * i, 80, 1.0, 0, 0, 0.5 * i, 0.5 * i + 0.5, names[i % len(names)])
        for i in range(8)
    ]
    (tmp_path / "a.mid").write_bytes(midi_file(notes, [PedalPress(0.25, 1.5)]))
    score = music21.converter.parse(tmp_path / "a.mid")
    found = sorted((n.offset, n.pitch.midi) for n in score.flatten().notes)
    assert found == [(float(note.onset_s * 2), note.pitch) for note in notes]
    assert len(score.parts) == len(set(names))


def test_every_instrument_has_a_track_with_its_name_and_program_and_none_is_drums() -> None:
    notes = [
        Note(i, 60 + i, 80, 1.0, 0, 0, 0.1 * i, 0.1 * i + 0.5, name, 0.9)
        for i, name in enumerate(PROGRAMS)
    ]
    pedal = [PedalPress(0.25, 1.5), PedalPress(1.5, 1.5)]  # pressed again, shorter than a tick
    data = midi_file(reversed(notes), pedal)
    assert data == midi_file(notes, pedal)
    file = mido.MidiFile(file=io.BytesIO(data))
    assert file.type == 1
    tempo, *tracks = file.tracks
    assert [message.type for message in tempo] == ["set_tempo", "time_signature", "end_of_track"]
    assert [track.name for track in tracks] == list(PROGRAMS)
    channels = [{m.channel for m in track if not m.is_meta} for track in tracks]
    assert all(len(channel) == 1 and 9 not in channel for channel in channels)
    assert len(set.union(*channels)) == 15
    for part, name in zip(
        pretty_midi.PrettyMIDI(io.BytesIO(data)).instruments, PROGRAMS, strict=True
    ):
        assert (part.name, part.program, len(part.notes)) == (name, PROGRAMS[name], 1)
    for name, track in zip(PROGRAMS, tracks, strict=True):
        values = [m.value for m in track if m.type == "control_change"]
        assert values == ([127, 0, 127, 0] if name in PEDALLED else [])
