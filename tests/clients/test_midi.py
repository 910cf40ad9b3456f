"""Notes gathered for a file, and played on a port: every note that begins ends."""

import io
import sys
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import mido
import pretty_midi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.events import Connected
from clients.midi import VIRTUAL_NAME, MidiOut, MidiPortError, MpeOut, ReceivedNotes, open_port
from service.protocol.midi_file import FASTEST_BPM, TICKS_PER_BEAT, Tempo, TempoMap
from service.protocol.server_messages import NoteBend, Pedal
from tests.clients.fake_devices import FakePort, off, on


@given(
    st.lists(st.floats(0.16, 3.0), min_size=1, max_size=30),
    st.floats(0, 10),
    st.floats(0, 100),
    st.sampled_from([1.0, 1.5]),
)
def test_ticks_are_times(
    periods_s: list[float], first_s: float, time_s: float, quarters: float
) -> None:
    """Beats lie on a sequencer's lines, and none is faster than any that may be asked for, not even
    the one before the first."""
    periods_s = [quarters * period_s for period_s in periods_s]
    beats_s = list(accumulate(periods_s, initial=first_s))
    ticks = TempoMap(Tempo(beats_s, quarters))
    tick, at_s, before = ticks.tick(time_s), 0.0, (0, 0)
    for place, us_per_quarter in ticks.changes:
        at_s += (min(tick, place) - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
        before = (min(tick, place), us_per_quarter)
    at_s += (tick - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
    assert at_s == pytest.approx(time_s, abs=max(periods_s) / TICKS_PER_BEAT + 1e-5)
    assert all(60e6 / us_per_quarter <= FASTEST_BPM + 0.1 for _, us_per_quarter in ticks.changes)
    per_beat = TICKS_PER_BEAT * quarters
    assert all((ticks.tick(beat_s) + 1) % per_beat <= 2 for beat_s in beats_s[1:])


@pytest.mark.parametrize("instrument", [None, "piano"])
def test_a_pedal_that_is_down_to_the_end_is_released_there(instrument: str | None) -> None:
    notes = ReceivedNotes()
    for event in (
        Pedal(down=True, frame=0, time_s=0.0),
        on(0, 60, 0.5, instrument=instrument),
        off(0, 60, 1.5),
    ):
        notes.event(event)
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi())).instruments
    assert [(c.value, round(c.time, 3)) for c in part.control_changes] == [(127, 0.0), (0, 1.5)]


def connected(programs: dict[str, int]) -> Connected:
    ready: Any = SimpleNamespace(instruments=programs)  # the only field used
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
    out.pedal(True)
    out.pedal(True)
    assert sent(port) == [
        ("note_off", 0, 60, 64),
        ("control_change", 0, 64, 0),
        ("note_on", 0, 62, 80),
        ("control_change", 0, 64, 127),
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


def test_ports_are_found_by_a_part_of_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_missing_rtmidi_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mido.backends.rtmidi", None)
    with pytest.raises(MidiPortError, match="pip install"):
        open_port("any")
