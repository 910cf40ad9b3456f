"""Tests of MIDI files and MIDI ports: every note that starts must end."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import mido
import pretty_midi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.events import Connected
from clients.midi import VIRTUAL_NAME, MidiOut, MidiPortError, MpeOut, ReceivedNotes, open_port
from service.protocol.midi_file import MASTER, MEMBERS
from service.protocol.server_messages import NoteBend, NoteUpdate, Pedal
from tests.clients.fake_devices import FakePort, note_off, note_on


@pytest.mark.parametrize("instrument", [None, "piano"])
def test_a_held_pedal_is_released_at_the_end(instrument: str | None) -> None:
    notes = ReceivedNotes()
    notes.handle(Pedal(down=True, frame=0, time_s=0.0))
    notes.handle(note_on(0, 60, 0.5, instrument=instrument))
    notes.handle(note_off(0, 60, 1.5))
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi())).instruments
    assert [(c.value, round(c.time, 3)) for c in part.control_changes] == [(127, 0.0), (0, 1.5)]


def test_the_instrument_of_an_ended_note_may_change() -> None:
    notes = ReceivedNotes()
    notes.handle(note_on(0, 60, 0.5, instrument="viola"))
    notes.handle(note_off(0, 60, 1.5))
    notes.handle(NoteUpdate(note_id=0, pitch=60, instrument="violin"))
    (note,) = notes.notes
    assert (note.instrument, note.offset_s) == ("violin", 1.5)


def take_messages(port: FakePort) -> list[tuple[str | int, ...]]:
    """Return and remove the port's messages, as type, channel and data bytes."""
    messages = [(m.type, m.channel, *m.bytes()[1:]) for m in port.messages]
    port.messages.clear()
    return messages


def test_each_instrument_has_its_own_channel() -> None:
    port = FakePort()
    out = MidiOut(port)
    ready: Any = SimpleNamespace(instruments={"violin": 40, "piano": 0})
    out.handle(Connected(ready=ready, resumed=False))
    out.handle(note_on(0, 60, instrument="violin"))
    out.handle(note_on(1, 60, instrument="piano"))
    out.handle(Pedal(down=True, frame=0, time_s=0.0))
    out.handle(note_off(0, 60))
    assert take_messages(port) == [
        ("program_change", 0, 40),
        ("note_on", 0, 60, 80),
        ("program_change", 1, 0),
        ("note_on", 1, 60, 80),
        ("control_change", 1, 64, 127),
        ("note_off", 0, 60, 64),
    ]
    out.close()
    assert take_messages(port) == [("note_off", 1, 60, 64), ("control_change", 1, 64, 0)]


def test_silence_ends_notes_and_releases_the_pedal() -> None:
    port = FakePort()
    out = MidiOut(port)
    out.handle(Pedal(down=True, frame=0, time_s=0.0))
    out.handle(note_on(0, 60))
    assert take_messages(port) == [("control_change", 0, 64, 127), ("note_on", 0, 60, 80)]
    out.silence()
    out.silence()
    out.handle(note_off(0, 60))
    out.handle(note_on(1, 62))
    out.pedal(True)
    out.pedal(True)
    assert take_messages(port) == [
        ("note_off", 0, 60, 64),
        ("control_change", 0, 64, 0),
        ("note_on", 0, 62, 80),
        ("control_change", 0, 64, 127),
    ]


def test_mpe_bends_apply_to_one_note() -> None:
    port = FakePort()
    out = MpeOut(port)
    assert len(port.messages) == 5 * 15  # zone setup, and bend ranges of its 14 channels
    for event in (note_on(0, 60), note_on(1, 64), Pedal(down=True, frame=0, time_s=0.0)):
        out.handle(event)
    out.handle(NoteBend(note_id=1, pitch=64, frame=0, time_s=0.0, cents=(0.0, 24.0)))
    out.handle(NoteBend(note_id=7, pitch=64, frame=0, time_s=0.0, cents=(9.0,)))  # unknown note
    first, second = (m.channel for m in port.messages if m.type == "note_on")
    assert 0 < first < second
    *_, pedal, wheel = port.messages
    assert (pedal.channel, pedal.control, pedal.value) == (0, 64, 127)
    assert (wheel.channel, wheel.pitch) == (second, round(24 * 8192 / 4800))
    out.close()
    ended = {(m.channel, m.note) for m in port.messages if m.type == "note_off"}
    assert ended == {(first, 60), (second, 64)}


def test_mpe_pedal_sustains_no_other_instrument() -> None:
    port = FakePort()
    out = MpeOut(port)
    out.handle(note_on(0, 60, instrument="piano"))
    out.handle(Pedal(down=True, frame=0, time_s=0.0))
    port.messages.clear()
    out.handle(note_on(1, 69, instrument="violin"))
    out.handle(Pedal(down=False, frame=0, time_s=0.0))
    sent = [m for m in port.messages if m.type in ("note_on", "control_change")]
    violin = next(m.channel for m in sent if m.type == "note_on")
    pedal = [(m.channel, m.value) for m in sent if m.type == "control_change"]
    others = [channel for channel in MEMBERS if channel != violin]
    assert pedal == [*((c, 127) for c in others), (MASTER, 0), *((c, 0) for c in others)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(60, 63))))
def test_overlapping_notes_of_a_pitch_sound_until_the_last_ends(
    changes: list[tuple[bool, int, int]],
) -> None:
    port = FakePort()
    out = MidiOut(port)
    pitches: dict[int, int] = {}
    for is_onset, note_id, pitch in changes:
        if is_onset and note_id not in pitches:
            pitches[note_id] = pitch
            out.handle(note_on(note_id, pitch))
        elif not is_onset:
            out.handle(note_off(note_id, pitches.pop(note_id, pitch)))
        assert port.sounding == set(pitches.values())
    out.close()
    assert port.sounding == set()
    assert port.closed


def test_ports_are_selected_by_part_of_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_output(name: str, virtual: bool = False) -> tuple[str, bool]:
        if name == "Synth B:0":
            raise OSError("port is in use")
        return name, virtual

    names = ["Midi Through:0", "Synth A:0", "Synth B:0"]
    backend = SimpleNamespace(get_output_names=lambda: names, open_output=open_output)
    monkeypatch.setattr(mido, "Backend", lambda name, load: backend)
    assert open_port("virtual") == (VIRTUAL_NAME, True)
    assert open_port("synth a") == ("Synth A:0", False)
    with pytest.raises(MidiPortError, match="organ.*Synth A:0"):
        open_port("organ")
    with pytest.raises(MidiPortError, match="in use"):
        open_port("synth b")


def test_the_error_states_how_to_install_rtmidi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mido.backends.rtmidi", None)
    with pytest.raises(MidiPortError, match="pip install"):
        open_port("any")
