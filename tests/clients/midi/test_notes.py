"""Notes gathered from events, and the MIDI file made of them."""

import io

import pretty_midi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.midi.notes import NoteList
from service.protocol.midi_file import FASTEST_BPM, TICKS_PER_BEAT, Beat, TempoMap
from service.protocol.server_messages import NoteUpdate, Pedal
from tests.clients.fakes.events import off, on


@given(st.floats(0.15, 3.0), st.floats(0, 10), st.floats(0, 100))
def test_ticks_are_times(period_s: float, first_s: float, time_s: float) -> None:
    """Beats lie on a sequencer's lines, and none is faster than any that may be asked for, not even
    the one before the first."""
    tempo = TempoMap(Beat(period_s, first_s))
    tick, at_s, before = tempo.tick(time_s), 0.0, (0, 0)
    for place, us_per_beat in tempo.changes:
        at_s += (min(tick, place) - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
        before = (min(tick, place), us_per_beat)
    at_s += (tick - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
    assert at_s == pytest.approx(time_s, abs=period_s / TICKS_PER_BEAT + 2e-6)
    assert all(60e6 / us_per_beat <= FASTEST_BPM + 0.1 for _, us_per_beat in tempo.changes)
    beats = [tempo.tick(first_s + beat * period_s) for beat in (2, 3, 10)]
    assert all((tick + 1) % TICKS_PER_BEAT <= 2 for tick in beats)


def test_instruments_have_tracks_programs_and_the_pedal() -> None:
    notes = NoteList()
    notes.programs = {"piano": 0, "violin": 40, "viola": 41}
    update = NoteUpdate(note_id=1, pitch=70, instrument="viola", instrument_probability=0.7)
    for event in (
        on(0, 60, 0.5, instrument="piano", instrument_probability=0.9),
        Pedal(down=True, frame=43, time_s=0.5),
        on(1, 70, 0.6, instrument="violin", instrument_probability=0.5),
        update,
        off(0, 60, 1.0),
        off(1, 70, 1.5),
        Pedal(down=False, frame=172, time_s=2.0),
    ):
        notes.event(event)
    assert notes.instruments == ["piano", "viola"]
    assert [note["instrument"] for note in notes.to_json()["notes"]] == ["piano", "viola"]
    piano, viola = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi())).instruments
    moves = [(c.number, c.value, round(c.time, 3)) for c in piano.control_changes]
    assert moves == [(64, 127, 0.5), (64, 0, 2.0)]
    assert viola.control_changes == []
    (only,) = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi(only="viola"))).instruments
    assert (only.name, only.program, [note.pitch for note in only.notes]) == ("viola", 41, [70])


@pytest.mark.parametrize("instrument", [None, "piano"])
def test_a_pedal_that_is_down_to_the_end_is_released_there(instrument: str | None) -> None:
    notes = NoteList()
    for event in (
        Pedal(down=True, frame=0, time_s=0.0),
        on(0, 60, 0.5, instrument=instrument),
        off(0, 60, 1.5),
    ):
        notes.event(event)
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi())).instruments
    assert [(c.value, round(c.time, 3)) for c in part.control_changes] == [(127, 0.0), (0, 1.5)]
