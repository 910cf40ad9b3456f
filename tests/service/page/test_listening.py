"""Tests of live transcription on the page, and of failures of the microphone and the server."""

import os
import re
import signal
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.benchmarks.machine import process_tree
from tests.service.page.browser import (
    ANNOUNCED,
    ENDLESS_A4,
    LISTENING,
    Tab,
    notes_from_server,
    notes_of,
    pitches_of,
)
from tests.service.page.conftest import NAMES, PITCHES
from tests.service.servers import START_S, RunningServer, StartServer
from tests.service.servers import TONES as TONES_SERVER

LIVE_OPTIONS = {"lookahead_ms": 200, "block_frames": 4}  # options of the page
HOLD_MICROPHONE = """(allowed) => {
  const media = navigator.mediaDevices;
  const open = media.getUserMedia.bind(media);
  media.getUserMedia = async (constraints) => {
    if (!allowed) await new Promise((resolve) => (window.allow = resolve));
    return (window.microphone = await open(constraints));
  };
}"""
"""Script that stores the microphone's stream in `microphone`. Without permission, it waits for
`allow()`."""
RECONNECT_MICROPHONE = """() => {
  delete navigator.mediaDevices.getUserMedia;
  navigator.mediaDevices.dispatchEvent(new Event('devicechange'));
}"""
TWO_CHANNELS = """() => {
  navigator.mediaDevices.getUserMedia = async () => {
    const context = new AudioContext();
    const tone = new OscillatorNode(context, { frequency: 440 });
    const both = new ChannelMergerNode(context, { numberOfInputs: 2 });
    for (const [at, name] of ['left', 'right'].entries()) {
      window[name] = new GainNode(context, { gain: 0 });
      tone.connect(window[name]).connect(both, 0, at);
    }
    const stream = new MediaStreamAudioDestinationNode(context, { channelCount: 2 });
    both.connect(stream);
    tone.start();
    window.applied = {};
    stream.stream.getAudioTracks()[0].getSettings = () => applied;
    return stream.stream;
  };
}"""


def test_microphone_gives_notes_and_files(tab: Tab, server: RunningServer, tmp_path: Path) -> None:
    page = tab.page
    tab.listen()
    expect(page.locator("#delay")).to_have_text(re.compile(r"^\d+ ms$"))
    page.locator("summary", has_text="List").click()
    tab.wait_for_melody(NAMES)
    expect(page.locator("#measured")).to_have_text(re.compile(r"\d+ m?s$"))
    expect(page.locator("#lag")).to_have_text(re.compile(r"\d+ m?s$"))
    tab.stop()
    assert page.evaluate("document.activeElement.id") == "listen"

    count = int(tab.roll["noteCount"])
    assert tab.roll["openCount"] == "0"
    expect(page.locator("#status")).to_have_text("Ready")
    expect(page.locator("#notes tr")).to_have_count(count)
    assert set(page.locator("#notes td:first-child").all_inner_texts()) == set(NAMES)
    midi = tab.download(tmp_path)

    # The recorded audio can be downloaded. As an upload it has the same notes.
    sound = tab.download(tmp_path, "Download WAV")
    notes = notes_of(tab.download(tmp_path, "Download JSON"))
    assert notes == notes_from_server(server, sound, **LIVE_OPTIONS)
    assert pitches_of(midi) == [note["pitch"] for note in notes]


def test_purpose_of_sound_is_set_where_browsers_support_it(tab: Tab) -> None:
    """An iPhone whose silent switch is on plays only sound whose purpose is playback."""
    tab.run("() => { navigator.audioSession = { type: 'auto' }; }")
    purpose = "() => navigator.audioSession.type"
    tab.listen()
    assert tab.run(purpose) == "play-and-record"
    tab.wait_for_notes(1)
    tab.stop()
    assert tab.run(purpose) == "auto"
    tab.press("Play")
    assert tab.run(purpose) == "playback"


def test_midi_out_switches_to_the_fast_mode(tab: Tab) -> None:
    page = tab.page
    started = tab.starts
    fast = page.get_by_role("radio", name="Fast")
    expect(fast).not_to_be_checked()
    tab.connect_synthesiser()
    expect(fast).to_be_checked()

    tab.press("Listen")
    tab.wait_for_notes(len(PITCHES))
    expect(fast).to_be_disabled()
    expect(page.locator("#delay-brief")).to_have_text(re.compile(r"^\d+(\.\d)? m?s of delay$"))
    assert (started[0]["mode"], started[0]["lookahead_ms"]) == ("anytime", 200)
    tab.stop()
    sent = page.evaluate("sent")
    note_ons, note_offs = ([m[1] for m in sent if m[0] & 0xF0 == kind] for kind in (0x90, 0x80))
    assert len(note_ons) >= len(PITCHES)
    assert set(note_ons) == set(PITCHES)
    assert sorted(note_ons) == sorted(note_offs)
    page.locator("#midi-port").select_option("Off")
    expect(fast).not_to_be_checked()

    tab.listen()
    assert (started[-1].get("mode"), started[-1]["lookahead_ms"]) == (None, 200)
    tab.stop()


def test_unavailable_microphone_is_explained_and_released(tab: Tab) -> None:
    page = tab.page
    for error, message in (
        ("NotAllowedError", "blocks the microphone"),
        ("NotReadableError", "in use by another program"),
    ):
        tab.run(
            """(name) => {
              navigator.mediaDevices.getUserMedia = async () => {
                throw new DOMException('', name);
              };
            }""",
            error,
        )
        tab.press("Listen")
        expect(page.locator("#status.trouble")).to_contain_text(message)
        expect(page.get_by_role("button", name="Listen")).to_be_enabled()

    # The user stops before the browser has a permission.
    tab.run("() => { delete navigator.mediaDevices.getUserMedia; }")
    tab.run(HOLD_MICROPHONE, False)
    tab.press("Listen")
    tab.press("Stop")
    expect(page.locator("#status")).to_have_text("Ready")
    page.evaluate("allow()")
    page.wait_for_function("() => window.microphone?.getTracks()[0].readyState === 'ended'")
    expect(page.locator("#status")).to_have_text("Ready")

    tab.press("Listen")
    page.evaluate("allow()")
    page.wait_for_selector(LISTENING)
    tab.stop()


def test_interrupted_input_is_resumed(tab: Tab, tmp_path: Path) -> None:
    """The microphone is unplugged. Then a telephone call suspends the audio."""
    page = tab.page
    status = page.locator("#status")
    tab.run("""() => {
      const Context = AudioContext;
      window.AudioContext = class extends Context {
        constructor(...options) {
          super(...options);
          window.context = this;
        }
        resume() {
          return window.calling ? Promise.reject(new Error('calling')) : super.resume();
        }
      };
    }""")
    tab.run(HOLD_MICROPHONE, True)
    tab.press("Listen")
    tab.wait_for_notes(2)
    tab.run("""() => {
      const first = microphone;
      navigator.mediaDevices.getUserMedia = async () => { throw new Error('none'); };
      first.getTracks()[0].stop();
      first.getTracks()[0].dispatchEvent(new Event('ended'));
    }""")
    expect(page.locator("#status.trouble")).to_contain_text("microphone was disconnected")
    tab.run(RECONNECT_MICROPHONE)
    expect(status).to_have_text("Listening")
    count = int(tab.roll["noteCount"])
    tab.wait_for_notes(count + 2)

    tab.run("() => { window.calling = true; return context.suspend(); }")
    expect(page.locator("#status.trouble")).to_contain_text("interrupted the audio")
    tab.run(
        "() => { window.calling = false; document.dispatchEvent(new Event('visibilitychange')); }"
    )
    expect(status).to_have_text("Listening")
    tab.wait_for_notes(int(tab.roll["noteCount"]) + 1)
    tab.stop()
    assert tab.roll["openCount"] == "0"
    pitches = pitches_of(tab.download(tmp_path))
    assert len(pitches) == int(tab.roll["noteCount"])
    assert set(pitches) <= set(PITCHES)


def test_problems_of_the_input_are_explained(tab: Tab) -> None:
    """The problems are silence, a silent channel, cancelling channels and noise suppression."""
    page, status, hint = tab.page, tab.page.locator("#status"), tab.page.locator("#input-hint")
    tab.run(TWO_CHANNELS)
    page.locator("#listen").dblclick()  # counts as one press
    page.wait_for_selector(LISTENING)
    expect(status).to_contain_text("No sound from this input")
    tab.run("() => { left.gain.value = 0; right.gain.value = 0.2; }")
    page.wait_for_selector("#roll[data-sounding='A4']")
    expect(status).to_have_text("Listening")
    expect(hint).to_contain_text("Only channel 2 is used: no other has sound")
    level = page.locator("#meter")
    before = int(level.get_attribute("aria-valuenow") or 0)
    tab.slide("#gain", 12)
    page.wait_for_function(
        "level => Number(document.getElementById('meter').ariaValueNow) >= level", arg=before + 10
    )
    tab.run("() => { left.gain.value = -0.2; }")
    expect(hint).to_contain_text("cancel each other out")
    page.locator("#channel").select_option("1")
    expect(hint).to_be_hidden()
    tab.run("() => { applied.noiseSuppression = true; }")
    expect(hint).to_contain_text("The browser applies noise suppression")
    tab.stop()


def test_take_without_notes_keeps_its_sound(tab: Tab) -> None:
    tab.run(TWO_CHANNELS)  # silent
    tab.listen()
    tab.until("async () => (await import('./app.js')).stage.take.recording.seconds > 3")
    tab.stop()
    expect(tab.page.locator("#takes .take-about")).to_contain_text("0 notes")
    expect(tab.page.locator("#takes .again")).to_be_enabled()


def test_muted_microphone_is_shown_and_screen_stays_on(tab: Tab) -> None:
    tab.run(HOLD_MICROPHONE, True)
    tab.run("""() => {
      window.locks = [];
      const request = async () => {
        locks.push('on');
        return { release: () => locks.push('off') };
      };
      Object.defineProperty(navigator, 'wakeLock', { value: { request } });
    }""")
    tab.listen()
    status = tab.page.locator("#status")
    tab.run("() => microphone.getTracks()[0].dispatchEvent(new Event('mute'))")
    expect(status).to_contain_text("muted the microphone")
    tab.run("() => microphone.getTracks()[0].dispatchEvent(new Event('unmute'))")
    expect(status).to_have_text("Listening")

    # The system releases the wake lock when the page is hidden. The page must acquire it again.
    tab.run("() => document.dispatchEvent(new Event('visibilitychange'))")
    tab.stop()
    assert tab.run("() => locks") == ["on", "on", "off"]


def test_audio_is_kept_while_the_server_is_not_ready(tab: Tab) -> None:
    page, status = tab.page, tab.page.locator("#status")
    tab.run(ENDLESS_A4)
    tab.run("""() => {
      const Real = WebSocket;
      window.WebSocket = class { close() {} };
      window.serve = () => (window.WebSocket = Real);
    }""")
    tab.press("Listen")
    expect(status).to_contain_text("not ready yet. What you play is kept")
    tab.stop()
    expect(status).to_contain_text("“Again”")
    page.get_by_role("button", name=re.compile("^Again")).click()
    expect(page.locator("#takes li")).to_have_count(2)
    assert page.locator("#takes li").first.inner_text().startswith("Live")
    assert int(tab.roll["noteCount"]) >= 1
    # If stopping takes too long, the user can abort it.
    tab.run("() => serve()")
    tab.listen()
    tab.wait_for_notes(1)
    tab.run("() => { WebSocket.prototype.send = () => {}; }")
    tab.press("Stop")
    tab.press("Stop now")
    expect(status).to_contain_text("Stopped before the last notes")
    expect(page.locator("#takes li")).to_have_count(3)


def test_take_continues_after_the_server_was_killed(
    browser: Browser, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*TONES_SERVER, RSE_MAX_SESSIONS="1", RSE_WORKERS="2")
    context = browser.new_context(reduced_motion="reduce")
    tab = Tab(context.new_page(), server)
    page = tab.page
    tab.run(ENDLESS_A4)
    tab.press("Listen")
    page.wait_for_selector("#roll[data-sounding='A4']")
    second_tab = Tab(context.new_page(), server)
    second_tab.press("Listen")
    status = second_tab.page.locator("#status.trouble")
    expect(status).to_contain_text("busy with other sessions; trying again")
    second_tab.stop()
    second_tab.page.close()

    tab.connect_synthesiser()
    tab.run(ANNOUNCED)
    server.process.send_signal(signal.SIGSTOP)  # the connection stalls
    page.wait_for_function("() => announced.some((text) => text.includes('not responding'))")
    expect(page.locator("#lag")).to_have_text(re.compile(r"^\d+\.\d s$"))
    page.wait_for_selector("#roll[data-sounding='']")
    assert page.evaluate("sent.at(-1)") == [0xB0, 123, 0]
    server.process.send_signal(signal.SIGCONT)
    # On a busy machine this notice comes after the other, which is then no longer valid.
    page.wait_for_function("() => announced.some((text) => text.includes('MIDI out is paused'))")
    expect(page.locator("#status")).to_have_text("Listening")
    page.wait_for_selector("#roll[data-sounding='A4']")

    for worker in process_tree(server.process.pid)[1:]:
        os.kill(worker, signal.SIGKILL)
    expect(page.locator("#reconnects")).to_have_text(re.compile("[1-9]"))
    page.wait_for_selector(LISTENING, timeout=1000 * START_S)
    page.wait_for_selector("#roll[data-sounding='A4']")

    server.process.kill()
    server.process.wait()
    page.wait_for_selector("body[data-state=reconnecting]")
    page.wait_for_selector("#roll[data-sounding='']")  # the notes may have ended by now
    expect(page.locator("#status.trouble")).to_contain_text("trying again")

    start_server(TONES_SERVER[0], str(server.port), wait=False)
    page.wait_for_selector(LISTENING, timeout=1000 * START_S)
    page.wait_for_selector("#roll[data-sounding='A4']")
    expect(page.locator("#reconnects")).to_have_text(re.compile("[1-9]"))
    expect(page.locator("#dropped")).to_have_text("0.0 s")
    tab.stop()
    assert tab.roll["openCount"] == "0"
    # No note was lost, duplicated or split: an upload of the take's audio has the same notes.
    sound = tab.download(tmp_path, "Download WAV")
    notes = notes_of(tab.download(tmp_path, "Download JSON"))
    assert notes == notes_from_server(server, sound, **LIVE_OPTIONS)
    context.close()
