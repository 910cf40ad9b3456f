"""Tests of MIDI out: channels, programs, the pedal, scheduled notes and reconnected ports."""

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.service.page.browser import Tab


def sent(bench: Tab, script: str) -> list[Any]:
    """Return the messages that the script's `out` sends to a port, each as [message, time]. The
    time is in ms from the start, or 0 for immediate messages."""
    messages: list[Any] = bench.run(
        f"""async () => {{
          const sent = [];
          const start = performance.now();
          const send = (bytes, at) => sent.push([[...bytes], at && at - start]);
          const port = {{ id: 'p', name: 'Synth', state: 'connected', send }};
          const access = Object.assign(new EventTarget(), {{ outputs: new Map([['p', port]]) }});
          navigator.requestMIDIAccess = async () => access;
          const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
          const {{ MidiOut }} = await import('./notes/midi-out.js');
          const out = new MidiOut();
          await out.open();
          out.noteOn(0, {{ pitch: 50, velocity: 1 }});  // without a port: no message
          out.choose('p');
          sent.length = 0;
          out.programs = {{ piano: 0, violin: 40 }};
          {script}
          return sent;
        }}"""
    )
    return messages


def test_each_instrument_has_a_channel(bench: Tab) -> None:
    messages = sent(
        bench,
        """
          out.noteOn(1, { pitch: 60, velocity: 90, instrument: 'violin' });
          out.noteOn(2, { pitch: 60, velocity: 70, instrument: 'piano' });
          out.pedal(true);
          out.noteOff(1);
          out.noteOn(3, { pitch: 60, velocity: 50, instrument: 'piano' });  // repeated note
          out.noteOff(2);  // the note_off of the earlier note is late
          out.noteOn(4, { pitch: 72, velocity: 10, instrument: 'piano' }, 100);  // still too short
          out.noteOff(4);
          out.silence();
          out.noteOff(3);
        """,
    )
    assert [message for message, _ in messages] == [
        *([0xC0, 40], [0x90, 60, 90], [0xC1, 0], [0x91, 60, 70], [0xB1, 64, 127], [0x80, 60, 64]),
        *([0x91, 60, 50], [0x81, 60, 64], [0xB1, 64, 0], [0xB0, 123, 0], [0xB1, 123, 0]),
    ]


def test_reconnected_port_is_used_again(bench: Tab) -> None:
    messages = sent(
        bench,
        """
          out.noteOn(1, { pitch: 60, velocity: 90, instrument: 'violin' });
          access.outputs.clear();
          access.dispatchEvent(new Event('statechange'));
          out.noteOn(2, { pitch: 62, velocity: 90, instrument: 'violin' });
          sent.push([out.ports.map(({ name }) => name)]);
          access.outputs.set('p', port);
          access.dispatchEvent(new Event('statechange'));
          out.noteOn(3, { pitch: 64, velocity: 90, instrument: 'violin' });
        """,
    )
    ports = ["Synth (unplugged)"]
    expected = [[0xC0, 40], [0x90, 60, 90], ports, [0xC0, 40], [0x90, 64, 90]]
    assert [message for message, *_ in messages] == expected


def test_scheduled_notes_end_and_can_be_cancelled(bench: Tab) -> None:
    messages = sent(
        bench,
        """
          out.play({ pitch: 60, velocity: 90, onset: 0, offset: 0.05 }, 0);
          out.play({ pitch: 60, velocity: 90, onset: 9, offset: 9.05 }, 9);
          await pause(400);
          out.silence();  // a seek
          out.play({ pitch: 64, velocity: 90, onset: 9, offset: 12 }, 0.08);
        """,
    )
    first, later, end, later_end, *controls, last = messages
    assert [m[:2] for m, _ in (first, later, end, later_end)] == [
        *([0x90, 60], [0x90, 60], [0x80, 60], [0x80, 60])
    ]
    assert end[1] == 0  # immediately, before the onset of the later note
    assert 9000 <= later[1] < later_end[1] < later[1] + 2
    assert {at for _, at in controls} == {0}
    assert last[0][:2] == [0x90, 64]


def test_programs_follow_the_take_and_shared_channels(bench: Tab) -> None:
    messages = sent(
        bench,
        """
          const note = { pitch: 60, velocity: 90 };
          const play = (instrument) => out.noteOn(instrument, { ...note, instrument });
          out.programs = { a: 56, p14: 1, p15: 2 };
          for (let part = 0; part < 16; part += 1) play(`p${part}`);  // the last uses channel 0
          play('p0');
          out.reset();
          for (const instrument of ['a', 'a', 'p15', null]) play(instrument);
        """,
    )
    *_, first, second, third, fourth, fifth, sixth = found = [message for message, _ in messages]
    assert [program for kind, program, *_ in found if kind == 0xC0] == [0, 2, 0, 56]
    assert [first, second, third] == [[0xC0, 56], [0x90, 60, 90], [0x90, 60, 90]]
    assert [fourth, fifth, sixth] == [[0xC1, 2], [0x91, 60, 90], [0x92, 60, 90]]


def test_another_take_starts_with_the_first_channel(tab: Tab, tmp_path: Path) -> None:
    tab.connect_synthesiser()
    for name, program in (("piano", 0), ("violin", 40)):
        note = {"pitch": 60, "onset_s": 0, "offset_s": 0.1, "instrument": name}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"notes": [note], "programs": {name: program}}))
        tab.page.set_input_files("#file", path)
        expect(tab.page.locator("#take-name")).to_have_text(name)
        tab.press("Play")
        tab.page.wait_for_function(f"() => sent.some((m) => `${{m}}` === '192,{program}')")
