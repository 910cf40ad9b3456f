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


def test_instruments_that_share_a_midi_channel_have_their_own_program_and_pedal(
    bench: Tab,
) -> None:
    now_ms, sent, times_ms = bench.run(
        FAKE_PORT
        + """
          const names = ['piano', ...Array(15).keys()];
          out.programs = Object.fromEntries(names.map((name, program) => [name, program]));
          const note = (instrument) =>
            ({ pitch: 60, velocity: 90, instrument: String(instrument), onset: 0, offset: 1 });
          names.forEach((name, key) => out.noteOn(key, note(name)));
          out.noteOn(16, note('piano'));
          out.pedal(true);
          out.noteOn(17, note(14));
          const now = performance.now();
          out.play(note('piano'), 0.2);  // handed over ahead of time
          return [now, sent, times];
        }"""
    )
    heard = [(*message, at) for message, at in zip(sent, times_ms, strict=True)]
    first = [message for message in heard if message[0] & 0x0F == 0]
    *at_once, (*again, program_ms), pressed, (*struck, note_ms) = first
    assert at_once == [
        (0xC0, 0, 0),
        (0x90, 60, 90, 0),
        (0xC0, 15, 0),
        (0x90, 60, 90, 0),
        (0xC0, 0, 0),
        (0x90, 60, 90, 0),
        (0xB0, 64, 127, 0),
        (0xC0, 15, 0),
        (0xB0, 64, 0, 0),
        (0x90, 60, 90, 0),
    ]
    assert (again, pressed, struck) == ([0xC0, 0], (0xB0, 64, 127, 0), [0x90, 60, 90])
    assert now_ms + 150 < program_ms < note_ms


def test_the_player_tells_how_the_pedal_moves(bench: Tab) -> None:
    reported = bench.run(
        """async () => {
          const { Player } = await import('./audio/player.js');
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Take } = await import('./notes/take.js');
          const take = new Take('pedal');
          take.pedalMoved(true, 0.1);
          take.pedalMoved(true, 0.2);
          take.pedalMoved(false, 30);
          take.finish({ length: 60 });
          const player = new Player(new NoteFilter());
          const reported = [];
          player.addEventListener('pedal', ({ detail }) => reported.push(detail));
          player.load(take);
          await player.play();
          while (reported.length < 3) await new Promise((resolve) => setTimeout(resolve, 20));
          await player.seek(10);
          await player.seek(40);
          player.pause();
          return reported;
        }"""
    )
    assert [move["down"] for move in reported] == [True, False, True, True]
    assert all(0 <= move["inSeconds"] <= 0.25 for move in reported)
    assert reported[3]["inSeconds"] == 0  # at once, where it has been down for a while


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
    assert [message[:2] for message in sent] == [[0x90, 60], [0x80, 60], [0xB0, 123], [0x90, 64]]
    begin_ms, end_ms, all_off_ms, _ = times_ms
    assert now_ms + 400 <= begin_ms < end_ms < begin_ms + 2
    assert all_off_ms == 0  # at once
