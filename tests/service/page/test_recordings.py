"""Recordings on the page: dropped, transcribed, played and saved."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import expect

from tests.fakes import play
from tests.service.page.browser import (
    IDLE,
    Tab,
    notes_of,
    pitches_of,
    saved,
    transcribed,
)
from tests.service.page.conftest import LONG_S, LONG_TONES, PITCHES, RATE_HZ, TONES
from tests.service.servers import RunningServer


def test_recording_gives_the_notes_that_the_server_finds(
    tab: Tab, server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    tab.upload(recording)
    page = tab.page
    expect(page.locator("#take-name")).to_have_text(recording.name)
    expect(page.locator("#note-count")).to_have_text(f"{len(TONES)} notes")
    expect(page.locator("#uploads")).to_be_hidden()
    midi = saved(tab.download(), tmp_path)
    assert midi.name == "four tones.mid"
    assert pitches_of(midi) == PITCHES

    notes = notes_of(saved(tab.download("Download JSON"), tmp_path))
    assert notes == transcribed(server, recording)
    assert [note["pitch"] for note in notes] == PITCHES
    sound = saved(tab.download("Download WAV"), tmp_path)
    assert sound.read_bytes() == recording.read_bytes()


def test_filters_act_on_all_that_shows_and_saves_notes(
    tab: Tab, recording: Path, tmp_path: Path
) -> None:
    tab.upload(recording)
    page = tab.page
    page.locator("summary", has_text="List").click()
    tab.slide("#least-length", 450)  # durations of 500, 400, 600 and 400 ms
    expect(page.locator("#note-count")).to_have_text("2 of 4 notes")
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "2")
    expect(page.locator("#notes tr")).to_have_count(2)
    assert pitches_of(saved(tab.download(), tmp_path)) == [69, 57]
    tab.slide("#least-confidence", 95)
    tab.slide("#least-length", 0)
    notes = notes_of(saved(tab.download("Download JSON"), tmp_path))
    assert all(note["confidence"] >= 0.95 for note in notes)
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", str(len(notes)))
    tab.slide("#least-confidence", 0)
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "4")


def test_many_files_become_takes(tab: Tab, recording: Path, tmp_path: Path) -> None:
    other = tmp_path / "one tone.flac"
    soundfile.write(other, play(TONES[:1], 1.4, RATE_HZ), RATE_HZ)
    letter = tmp_path / "letter.wav"
    letter.write_text("Dear musician, this is no recording.")
    page = tab.page
    tab.run("""() => {
      const gate = new Promise((open) => { window.openGate = open; });
      const send = window.fetch;
      window.fetch = (...request) => gate.then(() => send(...request));
    }""")
    page.set_input_files("#file", [recording, letter, other])
    bars = page.locator("#uploads progress")
    expect(bars.first).to_have_attribute("aria-label", f"Transcribing {recording.name}")
    tab.run("() => openGate()")
    expect(page.locator("#takes li")).to_have_count(2)
    page.wait_for_selector(IDLE)
    # The one that is no recording stays in the list, with the reason, until it is dismissed.
    failed = page.locator("#uploads .trouble")
    expect(failed).to_contain_text("letter.wav")
    assert len(failed.locator(".upload-text").inner_text()) > 10
    tab.press("Dismiss letter.wav")
    expect(page.locator("#uploads")).to_be_hidden()
    # The browser itself notes the refusal; nothing else may be on the console.
    assert all("422" in complaint for complaint in tab.complaints)
    tab.complaints.clear()

    expect(page.locator("#note-count")).to_have_text("1 note")
    samples, rate_hz = soundfile.read(saved(tab.download("Download WAV"), tmp_path))
    assert len(samples) / rate_hz == pytest.approx(1.4, abs=0.01)
    assert np.abs(samples).max() > 0.1
    page.get_by_role("button", name=recording.name).click()
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "4")


def test_file_can_be_dropped_anywhere(tab: Tab, tmp_path: Path) -> None:
    path = tmp_path / "one tone.wav"
    soundfile.write(path, play(TONES[:1], 1.4, 8000), 8000)
    shown = tab.run(
        """(bytes) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(bytes)], 'dropped.wav'));
          dispatchEvent(new DragEvent('dragenter', { dataTransfer }));
          const shown = !document.getElementById('dropping').hidden;
          dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
          return [shown, document.getElementById('dropping').hidden];
        }""",
        list(path.read_bytes()),
    )
    assert shown == [True, True]
    expect(tab.page.locator("#takes li")).to_have_count(1)
    expect(tab.page.locator("#take-name")).to_have_text("dropped.wav")
    expect(tab.page.locator("#note-count")).to_have_text("1 note")


def test_playback_moves_the_cursor_lights_keys_and_sounds(tab: Tab, long_recording: Path) -> None:
    tab.upload(long_recording)
    page = tab.page
    tab.run("""() => {
      window.started = [];
      for (const node of [AudioBufferSourceNode, OscillatorNode]) {
        const start = node.prototype.start;
        node.prototype.start = function (when, offset) {
          started.push([node.name, when, offset]);
          start.apply(this, arguments);
        };
      }
    }""")
    tab.press("Play")
    page.wait_for_selector("#roll[data-sounding='A4']")
    tab.slide("#seek", 20.5)  # scrubbed on while it plays
    page.wait_for_selector("#roll[data-sounding='A5']")
    tab.press("Pause")
    sounds = tab.run("() => started")
    # A browser that is late plays from where the music has got to.
    (begun, first), (_, second) = (
        rest for name, *rest in sounds if name == "AudioBufferSourceNode"
    )
    assert 0 <= first < LONG_TONES[0][2]
    assert 20.5 <= second < LONG_TONES[1][2]
    string = next(when for name, when, *_ in sounds if name == "OscillatorNode")
    _, onset_s, offset_s = LONG_TONES[0]
    assert onset_s - 0.05 <= string - (begun - first) < offset_s  # on the recording's clock
    tab.slide("#seek", LONG_S - 1)
    tab.press("Play")
    # It ends by itself, at the end of the take.
    expect(page.locator("#position")).to_have_text("1:02.0")
    page.wait_for_selector("#play[aria-label=Play]")
    expect(page.locator("#length")).to_have_text("/ 1:02.0")


def test_channels_that_cancel_each_other_are_told(tab: Tab, tmp_path: Path) -> None:
    path = tmp_path / "reversed.wav"
    left = play(TONES[:2], 2.0, 8000)
    soundfile.write(path, np.column_stack([left, -left]), 8000)
    tab.upload(path)
    expect(tab.page.locator("#status")).to_contain_text("reversed.wav: its channels cancel each")
    expect(tab.page.locator("#note-count")).to_have_text("2 notes")


def test_a_passage_is_looped(tab: Tab, long_recording: Path) -> None:
    """Marked in the times above the roll; a click there takes it back."""
    tab.upload(long_recording)
    page = tab.page
    loop = page.get_by_role("button", name="Loop")
    box = tab.box("#roll")
    shown = tab.view

    def at(seconds: float) -> float:
        share = (seconds - shown["start"]) / shown["span"]
        return box["x"] + 64 + share * (box["width"] - 64)

    page.mouse.move(at(21.0), box["y"] + 8)
    page.mouse.down()
    page.mouse.move(at(22.0), box["y"] + 8, steps=3)
    page.mouse.up()
    expect(loop).to_have_attribute("aria-pressed", "true")
    tab.run("""() => {
      window.positions = [];
      const position = document.getElementById('position');
      new MutationObserver(() => positions.push(Number(position.textContent.split(':')[1])))
        .observe(position, { childList: true, characterData: true, subtree: true });
    }""")
    tab.press("Play")
    page.wait_for_function("() => positions.filter((p, i) => p < positions[i - 1]).length > 0")
    tab.press("Pause")
    positions = tab.run("() => positions")
    assert all(20.8 <= position <= 22.3 for position in positions[1:])
    page.mouse.click(at(30.0), box["y"] + 8)
    expect(loop).to_have_attribute("aria-pressed", "false")
    loop.click()  # what is in view: all of it
    expect(loop).to_have_attribute("aria-pressed", "true")
