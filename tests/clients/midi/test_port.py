"""MIDI out: every note that begins ends, on every way out."""

import sys
from types import SimpleNamespace
from typing import Any

import mido
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.events import Connected
from clients.midi.port import VIRTUAL_NAME, MidiOut, MidiPortError, MpeOut, open_port
from service.protocol.server_messages import NoteBend, Pedal
from tests.clients.fakes.events import off, on
from tests.clients.fakes.fake_devices import FakePort


def connected(programs: dict[str, int]) -> Connected:
    ready: Any = SimpleNamespace(instruments=programs)  # as far as is read
    return Connected(ready=ready, resumed=False)


Sent = list[tuple[str | int, ...]]


def sent(port: FakePort) -> Sent:
    """Kind, channel and values of the messages since the last look."""
    messages = [(m.type, m.channel, *m.bytes()[1:]) for m in port.messages]
    port.messages.clear()
    return messages


def test_each_instrument_has_a_channel_and_the_pedal_that_of_the_piano() -> None:
    port = FakePort()
    out = MidiOut(port)
    out.event(connected({"violin": 40, "piano": 0}))
    out.event(on(0, 60, instrument="violin"))
    out.event(on(1, 60, instrument="piano"))
    out.event(Pedal(down=True, frame=0, time_s=0.0))
    out.event(off(0, 60))
    assert sent(port) == [
        ("program_change", 0, 40),
        ("note_on", 0, 60, 80),
        ("program_change", 1, 0),
        ("note_on", 1, 60, 80),
        ("control_change", 1, 64, 127),
        ("note_off", 0, 60, 64),
    ]
    out.close()
    assert sent(port) == [
        ("note_off", 1, 60, 64),
        ("control_change", 1, 64, 0),
        ("control_change", 0, 123, 0),
        ("control_change", 1, 123, 0),
    ]


def test_a_silence_ends_notes_and_the_pedal_which_those_without_an_instrument_have() -> None:
    port = FakePort()
    out = MidiOut(port)
    out.event(Pedal(down=True, frame=0, time_s=0.0))
    out.event(on(0, 60))
    assert sent(port) == [("control_change", 0, 64, 127), ("note_on", 0, 60, 80)]
    out.silence()
    out.silence()
    out.event(off(0, 60))
    out.event(on(1, 62))
    assert sent(port) == [
        ("note_off", 0, 60, 64),
        ("control_change", 0, 64, 0),
        ("note_on", 0, 62, 80),
    ]


def test_bends_are_those_of_one_note() -> None:
    port = FakePort()
    out = MpeOut(port)
    assert len(port.messages) == 5 * 15  # the zone, and the range of its 14 channels
    for event in (on(0, 60), on(1, 64), Pedal(down=True, frame=0, time_s=0.0)):
        out.event(event)
    out.event(NoteBend(note_id=1, pitch=64, frame=0, time_s=0.0, cents=(0.0, 24.0)))
    out.event(NoteBend(note_id=7, pitch=64, frame=0, time_s=0.0, cents=(9.0,)))  # has ended
    first, second = (m.channel for m in port.messages if m.type == "note_on")
    assert 0 < first < second
    *_, pedal, wheel = port.messages
    assert (pedal.channel, pedal.control, pedal.value) == (0, 64, 127)
    assert (wheel.channel, wheel.pitch) == (second, round(24 * 8192 / 4800))
    out.close()
    ended = {(m.channel, m.note) for m in port.messages if m.type == "note_off"}
    assert ended == {(first, 60), (second, 64)}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(60, 63))))
def test_a_pitch_sounds_as_long_as_a_note_of_it_and_nothing_after_close(
    moves: list[tuple[bool, int, int]],
) -> None:
    port = FakePort()
    out = MidiOut(port)
    pitches: dict[int, int] = {}
    for begins, note_id, pitch in moves:
        if begins and note_id not in pitches:
            pitches[note_id] = pitch
            out.event(on(note_id, pitch))
        elif not begins:
            out.event(off(note_id, pitches.pop(note_id, pitch)))
        assert port.sounding == set(pitches.values())
    out.close()
    assert port.sounding == set()
    assert port.closed


class FakeBackend:
    names = ("Midi Through:0", "Synth A:0", "Synth B:0")

    def get_output_names(self) -> list[str]:
        return list(self.names)

    def open_output(self, name: str, virtual: bool = False) -> tuple[str, bool]:
        if name == "Synth B:0":
            raise OSError("port is in use")
        return name, virtual


def test_ports_are_found_by_a_part_of_their_name_in_the_first_system_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(name: str, load: bool) -> FakeBackend:
        if name == "first":
            raise OSError("the first does not run")
        return FakeBackend()

    monkeypatch.setattr(mido, "Backend", load)
    monkeypatch.setattr("clients.midi.port.SYSTEMS", ["first", "second"])
    assert open_port("virtual") == (VIRTUAL_NAME, True)
    assert open_port("synth a") == ("Synth A:0", False)
    with pytest.raises(MidiPortError, match="the first does not run.*Synth A:0"):
        open_port("organ")
    with pytest.raises(MidiPortError, match="in use"):
        open_port("synth b")
    monkeypatch.setattr("clients.midi.port.SYSTEMS", ["first"])
    with pytest.raises(MidiPortError, match="the first does not run"):
        open_port("virtual")


def test_missing_rtmidi_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mido.backends.rtmidi", None)
    with pytest.raises(MidiPortError, match="pip install"):
        open_port("any")
