"""Notes gathered from events, and the MIDI file made of them."""

from pathlib import Path

import mido
import pretty_midi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clients.notes import NoteList
from clients.protocol import NoteOff, NoteOn
from service.events import Note as ServiceNote
from service.midi import midi_file


def on(note_id: int, pitch: int, time_s: float, velocity: int = 80) -> NoteOn:
    return NoteOn(
        note_id=note_id,
        pitch=pitch,
        velocity=velocity,
        confidence=0.5,
        frame=int(time_s * 86),
        time_s=time_s,
    )


def off(note_id: int, pitch: int, time_s: float) -> NoteOff:
    return NoteOff(note_id=note_id, pitch=pitch, frame=int(time_s * 86), time_s=time_s)


def test_notes_pair_by_id() -> None:
    notes = NoteList()
    for event in (on(0, 60, 0.5), on(1, 64, 0.6), off(0, 60, 1.0), on(2, 60, 1.0)):
        notes.event(event)
    notes.event("what is no note")
    assert [(note.pitch, note.onset_s, note.offset_s) for note in notes.notes] == [
        (60, 0.5, 1.0),
        (64, 0.6, None),
        (60, 1.0, None),
    ]
    assert [note.note_id for note in notes.sounding] == [1, 2]
    assert notes.to_json()[0] == {
        "note_id": 0,
        "pitch": 60,
        "velocity": 80,
        "confidence": 0.5,
        "onset_s": 0.5,
        "onset_frame": 43,
        "offset_s": 1.0,
        "offset_frame": 86,
    }


def test_an_end_without_a_beginning_is_nothing() -> None:
    notes = NoteList()
    notes.event(off(5, 60, 1.0))
    assert notes.notes == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 127), st.floats(0, 60), st.floats(0.01, 2), st.integers(1, 127)),
        max_size=20,
        unique_by=lambda note: note[0],
    )
)
def test_the_midi_file_holds_the_notes(
    tmp_path: Path, played: list[tuple[int, float, float, int]]
) -> None:
    notes = NoteList()
    for note_id, (pitch, onset_s, length_s, velocity) in enumerate(played):
        notes.event(on(note_id, pitch, onset_s, velocity))
        notes.event(off(note_id, pitch, onset_s + length_s))
    path = tmp_path / "notes.mid"
    notes.save_midi(path)
    read = [note for part in pretty_midi.PrettyMIDI(str(path)).instruments for note in part.notes]
    assert sorted((note.pitch, note.velocity) for note in read) == sorted(
        (pitch, velocity) for pitch, _, _, velocity in played
    )
    by_pitch = {note.pitch: note for note in read}
    for pitch, onset_s, length_s, _ in played:
        assert by_pitch[pitch].start == pytest.approx(onset_s, abs=0.0001)
        assert by_pitch[pitch].end == pytest.approx(onset_s + length_s, abs=0.0001)


def test_a_restruck_note_sounds_twice(tmp_path: Path) -> None:
    notes = NoteList()
    for event in (on(0, 60, 0.0), off(0, 60, 1.0), on(1, 60, 1.0), off(1, 60, 2.0)):
        notes.event(event)
    notes.save_midi(tmp_path / "notes.mid")
    kinds = [m.type for m in mido.MidiFile(tmp_path / "notes.mid").tracks[0] if not m.is_meta]
    assert kinds == ["note_on", "note_off", "note_on", "note_off"]


def test_the_file_is_the_one_that_the_service_writes() -> None:
    notes, service_notes = NoteList(), []
    for note_id, (pitch, onset_s, offset_s) in enumerate(
        [(60, 0.1, 1.0), (64, 0.1, 0.7), (60, 1.0, 1.3)]
    ):
        notes.event(on(note_id, pitch, onset_s))
        notes.event(off(note_id, pitch, offset_s))
        service_notes.append(ServiceNote(note_id, pitch, 80, 0.5, 0, 0, onset_s, offset_s))
    assert notes.midi() == midi_file(service_notes)
