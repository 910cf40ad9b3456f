"""MIDI out: channels, programs, the pedal, notes handed over ahead of their time, none stuck."""

from tests.service.page.browser import Tab

FAKE_PORT = """async () => {
          const sent = [];
          const times = [];
          const send = (bytes, at) => {
            sent.push([...bytes]);
            times.push(at);
          };
          const port = { id: 'p', state: 'connected', send };
          const access = Object.assign(new EventTarget(), { outputs: new Map([['p', port]]) });
          navigator.requestMIDIAccess = async () => access;
          const { MidiOut } = await import('./notes/midi-out.js');
          const out = new MidiOut();
          await out.open();
          out.choose('p');
          sent.length = times.length = 0;
"""


def test_midi_out_has_a_channel_for_each_instrument_and_leaves_no_note_stuck(bench: Tab) -> None:
    sent = bench.run(
        FAKE_PORT
        + """
          new MidiOut().noteOn(0, { pitch: 50, velocity: 1 });  // no port yet: nothing
          out.programs = { piano: 0, violin: 40 };
          out.noteOn(1, { pitch: 60, velocity: 90, instrument: 'violin' });
          out.noteOn(2, { pitch: 60, velocity: 70, instrument: 'piano' });
          out.pedal(true);
          out.noteOff(1);
          out.noteOn(3, { pitch: 60, velocity: 50, instrument: 'piano' });  // struck again
          out.noteOff(2);  // the earlier one's end is known only now
          out.noteOn(4, { pitch: 72, velocity: 10, instrument: 'piano' }, 100);  // too short yet
          out.noteOff(4);
          out.silence();
          out.noteOff(3);
          return sent;
        }"""
    )
    ends = [[0x81, 60, 64], [0xB1, 64, 0], [0xB0, 123, 0], [0xB1, 123, 0]]
    assert sent == [
        [0xC0, 40],
        [0x90, 60, 90],
        [0xC1, 0],
        [0x91, 60, 70],
        [0xB1, 64, 127],
        [0x80, 60, 64],
        [0x91, 60, 50],
        *ends,
    ]


def test_midi_out_presses_the_pedal_of_a_channel_that_opens_while_it_is_down(bench: Tab) -> None:
    sent = bench.run(
        FAKE_PORT
        + """
          out.pedal(true);
          out.noteOn(1, { pitch: 60, velocity: 90, instrument: 'violin' });
          out.noteOn(2, { pitch: 61, velocity: 90, instrument: 'piano' });
          out.silence();  // a pause: the pedal is up until it is pressed again
          out.noteOn(3, { pitch: 62, velocity: 90, instrument: 'electric piano' });
          return sent;
        }"""
    )
    pedal = [[0xB0, 64, 0], [0xB1, 64, 127], [0xB1, 64, 0]]
    assert [message for message in sent if message[1] == 64] == pedal
    assert sent.index([0xB1, 64, 127]) < sent.index([0x91, 61, 90])


def test_midi_out_moves_the_pedal_of_notes_without_an_instrument(bench: Tab) -> None:
    sent = bench.run(
        FAKE_PORT
        + """
          out.pedal(true);
          out.noteOn(1, { pitch: 60, velocity: 90 });
          out.pedal(false);
          return sent;
        }"""
    )
    assert sent == [[0xB0, 64, 127], [0x90, 60, 90], [0xB0, 64, 0]]


def test_midi_out_moves_the_pedal_later_unless_it_is_silenced(bench: Tab) -> None:
    sent = bench.run(
        FAKE_PORT
        + """
          out.noteOn(1, { pitch: 60, velocity: 90, instrument: 'piano' });
          sent.length = 0;
          out.pedal(true, 0.05);
          const before = sent.length;
          while (!sent.length) await new Promise((resolve) => setTimeout(resolve, 10));
          out.pedal(false, 0.1);
          out.pedal(true, 0.2);
          out.silence();
          await new Promise((resolve) => setTimeout(resolve, 400));
          return [before, ...sent.filter(([, number]) => number === 64)];
        }"""
    )
    assert sent == [0, [0xB0, 64, 127], [0xB0, 64, 0]]


def test_repeated_notes_end_before_the_next_begins(bench: Tab) -> None:
    sent = bench.run(
        FAKE_PORT
        + """
          // Handed over ahead of time: the second begins after the first has ended.
          out.play({ pitch: 60, velocity: 90, onset: 0, offset: 0.05 }, 0);
          out.play({ pitch: 60, velocity: 90, onset: 60, offset: 60.05 }, 60);
          await new Promise((resolve) => setTimeout(resolve, 500));
          return sent;
        }"""
    )
    assert [status for status, *_ in sent] == [0x90, 0x90, 0x80]


def test_silence_ends_scheduled_notes_and_none_that_begin_later(bench: Tab) -> None:
    now_ms, sent, times_ms = bench.run(
        FAKE_PORT
        + """
          const now = performance.now();
          out.play({ pitch: 60, velocity: 90, onset: 0, offset: 3 }, 0.4);
          out.silence();  // a seek
          out.play({ pitch: 64, velocity: 90, onset: 9, offset: 12 }, 0.08);
          return [now, sent, times];
        }"""
    )
    ends = [[0x80, 60], [0xB0, 64], [0xB0, 123]]
    assert [message[:2] for message in sent] == [[0x90, 60], *ends, [0x90, 64]]
    begin_ms, end_ms, _, all_off_ms, _ = times_ms
    assert now_ms + 400 <= begin_ms < end_ms < begin_ms + 2
    assert all_off_ms == 0  # at once
