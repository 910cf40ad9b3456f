"""Instruments on the page: colours, the legend, mute and solo, the pedal, files of one."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pretty_midi
import pytest
import soundfile
from playwright.sync_api import Browser, expect

from model.config import INSTRUMENTS
from model.instruments import PROGRAMS
from service.notes.pedal import PEDALLED
from tests.fakes import play
from tests.service.page.browser import Tab, fresh_tab, notes_of, pitches_of, saved
from tests.service.servers import TONES, RunningServer, server_starter

RATE_HZ = 22_050
DURATION_S = 2.2
# A tone's loudness is its instrument to the fake.
PARTS = [(81, 0.2, 0.7, 0.17), (57, 0.8, 1.2, 0.2), (69, 1.4, 1.9, 0.14), (93, 1.4, 1.9, 0.14)]
LEGEND = {"piano": 1, "violin": 1, "viola": 2}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "trio.wav"
    parts = [play([(p, on, off)], DURATION_S, RATE_HZ, level) for p, on, off, level in PARTS]
    soundfile.write(path, np.sum(parts, axis=0), RATE_HZ, subtype="PCM_16")
    return path


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with server_starter(tmp_path_factory.mktemp("server")) as start:
        yield start(*TONES, "all", RSE_MAX_REQUEST_BURST="100000")


@pytest.fixture
def page_of(browser: Browser, listening: RunningServer) -> Iterator[Tab]:
    yield from fresh_tab(browser, listening)


def legend(tab: Tab) -> dict[str, int]:
    rows = tab.page.locator("#instruments li:visible").all()
    names = [row.locator(".instrument-name").inner_text() for row in rows]
    counts = [int(row.locator(".instrument-count").inner_text()) for row in rows]
    return dict(zip(names, counts, strict=True))


def test_the_legend_mutes_and_plays_alone(page_of: Tab, trio: Path, tmp_path: Path) -> None:
    tab, page = page_of, page_of.page
    tab.upload(trio)
    expect(page.locator("#instruments")).to_be_visible()
    expect(page.locator("#instruments li:visible")).to_have_count(len(LEGEND))
    assert legend(tab) == LEGEND
    notes = notes_of(saved(tab.download("Download JSON"), tmp_path))
    named = [str(note["instrument"]) for note in notes]
    assert named == ["violin", "piano", "viola", "viola"]

    tab.press("Mute viola")
    expect(page.locator("#note-count")).to_have_text("2 of 4 notes")
    assert pitches_of(saved(tab.download(), tmp_path)) == [81, 57]
    tab.press("Mute viola")
    tab.press("Solo violin")
    expect(page.locator("#note-count")).to_have_text("1 of 4 notes")
    expect(page.get_by_role("button", name="Solo violin")).to_have_attribute("aria-pressed", "true")
    tab.press("Solo violin")
    expect(page.locator("#note-count")).to_have_text("4 notes")


def test_files_of_one_instrument_and_of_all(page_of: Tab, trio: Path, tmp_path: Path) -> None:
    tab = page_of
    tab.upload(trio)
    own = saved(tab.download("Download MIDI of viola"), tmp_path)
    assert own.name == "trio.viola.mid"
    (viola,) = pretty_midi.PrettyMIDI(str(own)).instruments
    assert (viola.name, viola.program) == ("viola", PROGRAMS["viola"])
    assert sorted(note.pitch for note in viola.notes) == [69, 93]

    tab.slide("#least-length", 10)  # the page's own file, not the server's
    parts = pretty_midi.PrettyMIDI(str(saved(tab.download(), tmp_path))).instruments
    assert {part.name: len(part.notes) for part in parts} == LEGEND
    assert all(part.program == PROGRAMS[part.name] for part in parts)
    (piano,) = [part for part in parts if part.name == "piano"]
    assert [(c.number, c.value) for c in piano.control_changes] == [(64, 127), (64, 0)]


def test_the_page_knows_every_instrument_of_the_service(page_of: Tab) -> None:
    known, pedalled = page_of.run(
        """async (names) => {
          const { colourOf, hasPedal } = await import('./notes/instruments.js');
          const colours = names.map((name) => colourOf(name, 0.6));
          return [new Set(colours).size, names.filter(hasPedal)];
        }""",
        list(INSTRUMENTS),
    )
    assert known == len(INSTRUMENTS)
    assert tuple(pedalled) == PEDALLED


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
"""


def test_midi_out_has_a_channel_for_each_instrument_and_leaves_no_note_stuck(page_of: Tab) -> None:
    sent = page_of.run(
        FAKE_PORT
        + """
          out.noteOn(0, { pitch: 50, velocity: 1 });  // no port yet: nothing
          await out.open();
          out.choose('p');
          sent.length = 0;
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


def test_midi_out_presses_the_pedal_of_a_channel_that_opens_while_it_is_down(page_of: Tab) -> None:
    sent = page_of.run(
        FAKE_PORT
        + """
          await out.open();
          out.choose('p');
          sent.length = 0;
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
    page_of: Tab,
) -> None:
    now_ms, sent, times_ms = page_of.run(
        FAKE_PORT
        + """
          await out.open();
          out.choose('p');
          sent.length = times.length = 0;
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


def test_repeated_notes_end_before_the_next_begins(page_of: Tab) -> None:
    sent = page_of.run(
        FAKE_PORT
        + """
          await out.open();
          out.choose('p');
          sent.length = times.length = 0;
          // Handed over ahead of time: the second begins after the first has ended.
          out.play({ pitch: 60, velocity: 90, onset: 0, offset: 0.05 }, 0);
          out.play({ pitch: 60, velocity: 90, onset: 60, offset: 60.05 }, 60);
          await new Promise((resolve) => setTimeout(resolve, 500));
          return sent;
        }"""
    )
    assert [status for status, *_ in sent] == [0x90, 0x90, 0x80]


def test_the_legend_can_be_used_while_notes_arrive(page_of: Tab) -> None:
    focused, muted = page_of.run(
        """async () => {
          const { Legend } = await import('./roll/legend.js');
          const { NoteFilter } = await import('./notes/note-filter.js');
          const { Take } = await import('./notes/take.js');
          const list = document.body.appendChild(document.createElement('ul'));
          const filter = new NoteFilter();
          const take = new Take('live');
          take.programs = { piano: 0, violin: 40 };
          const note = (key) => take.noteOn(
            key, { pitch: 60 + key, velocity: 64, confidence: 1, instrument: 'violin' }, key);
          note(0);
          const legend = new Legend(list, filter);
          legend.show(take);
          const mute = list.querySelector('.mute');
          mute.focus();
          mute.click();
          note(1);
          await new Promise((resolve) => setTimeout(resolve, 700));
          const focused = document.activeElement === mute;
          legend.show(take);  // as at the end of a take
          return [focused, filter.isMuted('violin')];
        }"""
    )
    assert focused
    assert muted


def test_silence_ends_scheduled_notes_and_none_that_begin_later(page_of: Tab) -> None:
    now_ms, sent, times_ms = page_of.run(
        FAKE_PORT
        + """
          await out.open();
          out.choose('p');
          sent.length = times.length = 0;
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
