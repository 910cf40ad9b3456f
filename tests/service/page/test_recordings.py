"""Tests of recordings on the page: upload, filters, playback and files."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Route, expect

from tests.fakes import play
from tests.service.page.browser import (
    IDLE,
    Tab,
    notes_from_server,
    notes_of,
    pitches_of,
)
from tests.service.page.conftest import LONG_S, LONG_TONES, PITCHES, RATE_HZ, TONES
from tests.service.servers import RunningServer


def test_recording_has_the_notes_of_the_server(
    tab: Tab, server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    tab.upload(recording)
    page = tab.page
    expect(page.locator("#take-name")).to_have_text(recording.stem)
    expect(page.locator("#note-count")).to_have_text(f"{len(TONES)} notes")
    expect(page.locator("#uploads")).to_be_hidden()
    midi = tab.download(tmp_path)
    assert midi.name == "four tones.mid"
    assert pitches_of(midi) == PITCHES

    notes = notes_of(tab.download(tmp_path, "Download JSON"))
    assert notes == notes_from_server(server, recording)
    assert [note["pitch"] for note in notes] == PITCHES
    sound = tab.download(tmp_path, "Download WAV")
    assert sound.read_bytes() == recording.read_bytes()


def test_recording_is_sent_again_after_a_restart_of_the_service(
    tab: Tab, recording: Path, tmp_path: Path
) -> None:
    """The first response ends in the middle, with a note that the second response has again."""
    note = {"note_id": 0, "pitch": 61, "velocity": 80, "confidence": 0.9, "frame": 0, "time_s": 0}
    messages = [
        {"type": "started", "instruments": None},
        {"type": "note_on", **note},
        {"type": "error", "code": "draining", "message": "restarting", "retryable": True},
    ]
    body = "\n".join(map(json.dumps, messages))

    def cut_off(route: Route) -> None:
        route.fulfill(content_type="application/x-ndjson", body=body)

    tab.page.route("**/transcribe*", cut_off, times=1)
    tab.upload(recording)
    assert pitches_of(tab.download(tmp_path)) == PITCHES
    assert [note["pitch"] for note in notes_of(tab.download(tmp_path, "Download JSON"))] == PITCHES


def test_filters_apply_to_views_and_files_and_select_notes_to_delete(
    tab: Tab, recording: Path, tmp_path: Path
) -> None:
    tab.upload(recording)
    page = tab.page
    page.locator("summary", has_text="List").click()
    tab.slide("#least-length", 450)  # durations of 500, 400, 600 and 400 ms
    expect(page.locator("#note-count")).to_have_text("2 of 4 notes")
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "2")
    expect(page.locator("#notes tr")).to_have_count(2)
    assert pitches_of(tab.download(tmp_path)) == [69, 57]
    tab.slide("#least-confidence", 95)
    tab.slide("#least-length", 0)
    notes = notes_of(tab.download(tmp_path, "Download JSON"))
    assert all(note["confidence"] >= 0.95 for note in notes)
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", str(len(notes)))
    tab.slide("#least-confidence", 0)
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "4")
    tab.press("Edit")
    tab.press("All")
    tab.slide("#least-length", 450)
    expect(page.locator("#edit-count")).to_have_text("2 selected")
    tab.press("Delete hidden notes")
    tab.slide("#least-length", 0)
    expect(page.locator("#note-count")).to_have_text("2 notes")


def test_each_recording_becomes_a_take(tab: Tab, recording: Path, tmp_path: Path) -> None:
    other = tmp_path / "one tone.flac"
    soundfile.write(other, play(TONES[:1], 1.4, RATE_HZ), RATE_HZ)
    text_file = tmp_path / "letter.wav"
    text_file.write_text("Dear musician, this is no recording.")
    page = tab.page
    tab.run("""() => {
      const gate = new Promise((open) => { window.openGate = open; });
      const send = window.fetch;
      window.fetch = (...request) => gate.then(() => send(...request));
    }""")
    page.set_input_files("#file", [recording, text_file, other])
    bars = page.locator("#uploads progress")
    expect(bars.first).to_have_attribute("aria-label", f"Transcribing {recording.name}")
    tab.run("() => openGate()")
    expect(page.locator("#takes li")).to_have_count(2)
    page.wait_for_selector(IDLE)
    # A file that is not a recording stays in the list, with the reason, until it is dismissed.
    failed = page.locator("#uploads .trouble")
    expect(failed).to_contain_text("letter.wav")
    assert len(failed.locator(".upload-text").inner_text()) > 10
    tab.press("Dismiss letter.wav")
    expect(page.locator("#uploads")).to_be_hidden()
    # The browser logs the rejected request. No other error may be on the console.
    assert all("422" in error for error in tab.console_errors)
    tab.console_errors.clear()

    expect(page.locator("#note-count")).to_have_text("1 note")
    samples, rate_hz = soundfile.read(tab.download(tmp_path, "Download WAV"))
    assert len(samples) / rate_hz == pytest.approx(1.4, abs=0.01)
    assert np.abs(samples).max() > 0.1
    page.get_by_role("button", name=recording.stem).click()
    expect(tab.page.locator("#roll")).to_have_attribute("data-note-count", "4")


def test_dropped_file_with_cancelling_channels_is_reported(tab: Tab, tmp_path: Path) -> None:
    path = tmp_path / "reversed.wav"
    left = play(TONES[:2], 2.0, 8000)
    soundfile.write(path, np.column_stack([left, -left]), 8000)
    shown_and_hidden = tab.run(
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
    assert shown_and_hidden == [True, True]
    expect(tab.page.locator("#takes li")).to_have_count(1)
    expect(tab.page.locator("#take-name")).to_have_text("dropped")
    expect(tab.page.locator("#note-count")).to_have_text("2 notes")
    expect(tab.page.locator("#status")).to_contain_text("dropped.wav: its channels cancel each")


def test_playback_follows_the_recording(tab: Tab, long_recording: Path) -> None:
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
    tab.slide("#seek", 20.5)  # seek during playback
    page.wait_for_selector("#roll[data-sounding='A5']")
    tab.press("Pause")
    sounds = tab.run("() => started")
    # A browser that starts late plays from the current position of the music.
    (start_s, first), (_, second) = (
        rest for name, *rest in sounds if name == "AudioBufferSourceNode"
    )
    assert 0 <= first < LONG_TONES[0][2]
    assert 20.5 <= second < LONG_TONES[1][2]
    tone_s = next(when for name, when, *_ in sounds if name == "OscillatorNode")
    _, onset_s, offset_s = LONG_TONES[0]
    # The synthesised tone is synchronous with the recording.
    assert onset_s - 0.05 <= tone_s - (start_s - first) < offset_s
    tab.slide("#seek", LONG_S - 1)
    tab.press("Play")
    # Playback stops at the end of the take.
    expect(page.locator("#position")).to_have_text("1:02.0")
    page.wait_for_selector("#play[aria-label=Play]")
    expect(page.locator("#length")).to_have_text("/ 1:02.0")


def test_marked_passage_is_looped(tab: Tab, long_recording: Path) -> None:
    """A drag in the ruler above the roll marks the passage, and a click there removes it."""
    tab.upload(long_recording)
    page = tab.page
    loop = page.get_by_role("button", name="Loop")

    def ruler_at(seconds: float) -> tuple[float, float]:
        return tab.point(seconds, 69)[0], tab.box("#roll")["y"] + 8

    tab.drag(ruler_at(21.0), ruler_at(22.0))
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
    # The passage ends at about 22 s, but a busy machine is late.
    assert all(20.8 <= position < 26 for position in positions[1:])
    page.mouse.click(*ruler_at(30.0))
    expect(loop).to_have_attribute("aria-pressed", "false")
    loop.click()  # loops the visible part, which is the complete take
    expect(loop).to_have_attribute("aria-pressed", "true")
