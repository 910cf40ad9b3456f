"""Listening on the page: the fake microphone, what may go wrong with it, and the demo."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.service.page.browser import (
    IDLE,
    LISTENING,
    SYNTHESISER,
    Tab,
    notes_of,
    pitches_of,
    saved,
    transcribed,
)
from tests.service.page.conftest import NAMES, PITCHES
from tests.service.servers import START_S, RunningServer, StartServer
from tests.service.servers import TONES as TONES_SERVER

LIVE_OPTIONS = {"lookahead_ms": 100, "block_frames": 4}  # those that the page asks for
MICROPHONE_IN_HAND = """(allowed) => {
  const media = navigator.mediaDevices;
  const open = media.getUserMedia.bind(media);
  media.getUserMedia = async (wish) => {
    if (!allowed) await new Promise((resolve) => (window.allow = resolve));
    return (window.heard = await open(wish));
  };
}"""
ENDLESS_A4 = """() => {
  navigator.mediaDevices.getUserMedia = async () => {
    const context = new AudioContext();
    const tone = new OscillatorNode(context, { frequency: 440 });
    const stream = new MediaStreamAudioDestinationNode(context);
    tone.connect(new GainNode(context, { gain: 0.2 })).connect(stream);
    tone.start();
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
    assert page.locator("#lag").inner_text() != "–"
    tab.stop()

    count = int(tab.roll["noteCount"])
    assert tab.roll["openCount"] == "0"
    expect(page.locator("#status")).to_have_text("Ready")
    expect(page.locator("#notes tr")).to_have_count(count)
    assert set(page.locator("#notes td:first-child").all_inner_texts()) == set(NAMES)
    midi = saved(tab.download(), tmp_path)

    # What was heard can be kept, and as a recording it gives the very same notes.
    sound = saved(tab.download("Download WAV"), tmp_path)
    notes = notes_of(saved(tab.download("Download JSON"), tmp_path))
    assert notes == transcribed(server, sound, **LIVE_OPTIONS)
    assert pitches_of(midi) == [note["pitch"] for note in notes]


def test_a_synthesiser_is_played_along_with(tab: Tab) -> None:
    page = tab.page
    started: list[dict[str, object]] = []

    def note(message: str | bytes) -> None:
        if isinstance(message, str) and '"start"' in message:
            started.append(json.loads(message))

    page.on("websocket", lambda socket: socket.on("framesent", note))
    switch, delay = page.locator("#play-along"), page.locator("#play-along-delay")
    expect(switch).not_to_be_checked()
    tab.run(SYNTHESISER)
    page.locator("#midi-connect").click()
    page.locator("#midi-port").select_option("Synth")
    expect(switch).to_be_checked()
    expect(delay).to_have_text("")

    tab.press("Listen")
    tab.wait_for_notes(len(PITCHES))
    expect(switch).to_be_disabled()
    expect(delay).to_have_text(re.compile(r"^\(\d+(\.\d)? m?s\)$"))
    assert (started[0]["mode"], started[0]["lookahead_ms"]) == ("anytime", 200)
    tab.stop()
    sent = page.evaluate("sent")
    begun, ended = ([m[1] for m in sent if m[0] & 0xF0 == kind] for kind in (0x90, 0x80))
    assert len(begun) >= len(PITCHES)
    assert set(begun) == set(PITCHES)
    assert sorted(begun) == sorted(ended)
    page.locator("#midi-port").select_option("Off")
    expect(switch).not_to_be_checked()

    tab.listen()
    assert (started[-1].get("mode"), started[-1]["lookahead_ms"]) == (None, 100)
    tab.stop()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("NotAllowedError", "blocks the microphone"),
        ("NotFoundError", "not found"),
        ("NotReadableError", "in use by another program"),
    ],
)
def test_microphone_that_cannot_be_had(tab: Tab, fault: str, words: str) -> None:
    tab.run(
        """(name) => {
          navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', name); };
        }""",
        fault,
    )
    tab.press("Listen")
    expect(tab.page.locator("#status.trouble")).to_contain_text(words)
    expect(tab.page.get_by_role("button", name="Listen")).to_be_enabled()


def test_stop_before_the_microphone_is_allowed_lets_go_of_it(tab: Tab) -> None:
    page = tab.page
    tab.run(MICROPHONE_IN_HAND, False)
    tab.press("Listen")
    tab.press("Stop")
    expect(page.locator("#status")).to_have_text("Ready")
    page.evaluate("allow()")
    page.wait_for_function("() => window.heard?.getTracks()[0].readyState === 'ended'")
    expect(page.locator("#status")).to_have_text("Ready")

    tab.press("Listen")
    page.evaluate("allow()")
    page.wait_for_selector(LISTENING)
    tab.stop()


def test_unplugged_microphone_keeps_the_take(tab: Tab, tmp_path: Path) -> None:
    tab.run(MICROPHONE_IN_HAND, True)
    tab.press("Listen")
    tab.wait_for_notes(2)
    tab.run("() => heard.getTracks()[0].dispatchEvent(new Event('ended'))")
    expect(tab.page.locator("#status.trouble")).to_contain_text("microphone was disconnected")
    tab.page.wait_for_selector(IDLE)
    assert tab.roll["openCount"] == "0"
    pitches = pitches_of(saved(tab.download(), tmp_path))
    assert len(pitches) == int(tab.roll["noteCount"]) >= 2
    assert set(pitches) <= set(PITCHES)


def test_changes_while_listening_are_shown_and_the_take_goes_on(tab: Tab) -> None:
    tab.run(MICROPHONE_IN_HAND, True)
    tab.listen()
    status = tab.page.locator("#status")
    tab.run("""() => {
      heard.getTracks()[0].getSettings = () => ({ sampleRate: 16000 });
      navigator.mediaDevices.dispatchEvent(new Event('devicechange'));
    }""")
    expect(status).to_contain_text("now runs at 16 kHz")
    tab.run("() => heard.getTracks()[0].dispatchEvent(new Event('mute'))")
    expect(status).to_contain_text("muted the microphone")
    tab.run("() => heard.getTracks()[0].dispatchEvent(new Event('unmute'))")
    expect(status).to_have_text("Listening")

    other = Tab(tab.page.context.new_page(), tab.server)
    other.press("Listen")
    expect(other.page.locator("#status")).to_contain_text("Another tab")
    other.stop()
    other.page.close()
    assert other.complaints == []

    tab.run("""() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    expect(status).to_contain_text("in the background")
    tab.stop()


def test_take_goes_on_after_the_server_was_killed(
    browser: Browser, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(*TONES_SERVER, RSE_MAX_SESSIONS="1")
    context = browser.new_context()
    tab = Tab(context.new_page(), server)
    page = tab.page
    tab.run(ENDLESS_A4)
    tab.press("Listen")
    page.wait_for_selector("#roll[data-sounding='A4']")
    refused = Tab(context.new_page(), server)
    refused.press("Listen")
    status = refused.page.locator("#status.trouble")
    expect(status).to_contain_text("sessions are taken; trying again")
    refused.stop()
    refused.page.close()

    server.process.kill()
    server.process.wait()
    page.wait_for_selector("body[data-state=reconnecting]")
    page.wait_for_selector("#roll[data-sounding='']")  # nothing sounds that may have ended
    expect(page.locator("#status.trouble")).to_contain_text("trying again")

    start_server(TONES_SERVER[0], str(server.port), wait=False)
    page.wait_for_selector(LISTENING, timeout=1000 * START_S)
    page.wait_for_selector("#roll[data-sounding='A4']")
    expect(page.locator("#reconnects")).to_have_text("1")
    expect(page.locator("#dropped")).to_have_text("0.0 s")
    tab.stop()
    assert tab.roll["openCount"] == "0"
    # No note was lost, doubled or cut at the break: the whole take, as a recording, says so.
    sound = saved(tab.download("Download WAV"), tmp_path)
    notes = notes_of(saved(tab.download("Download JSON"), tmp_path))
    assert notes == transcribed(server, sound, **LIVE_OPTIONS)
    context.close()


def test_demo_is_one_click_away(tab: Tab) -> None:
    tab.press("Hear a demo instead")
    tab.page.wait_for_selector(LISTENING)
    expect(tab.page.locator("#take-name")).to_contain_text("Demo")
    tab.wait_for_notes(1)  # the fake model hears its A4 alone
    tab.stop()
    assert tab.roll["openCount"] == "0"
