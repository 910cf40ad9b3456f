"""The page, used in a real browser against a real server process.

The model is the one that hears pure tones, so every note is known; the microphone is a WAV file
played into the browser's fake input device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import mido
import pytest
import soundfile
from playwright.sync_api import Browser, Download, Page, Playwright, expect, sync_playwright

from tests.conftest import require_system
from tests.fakes import play
from tests.service.browser import chromium
from tests.service.conftest import TONES as TONES_SERVER
from tests.service.conftest import RunningServer, StartServer

RATE_HZ = 48_000
# (pitch, onset, offset) in seconds; the fake microphone plays this once from when it is opened
TONES = [(69, 0.5, 1.0), (81, 1.2, 1.6), (57, 1.8, 2.4), (69, 2.6, 3.0)]
NAMES = ["A4", "A5", "A3", "A4"]
PITCHES = [pitch for pitch, _, _ in TONES]
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

LISTENING = "body[data-state=listening]"
IDLE = "body[data-state=idle]"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "four tones.wav"
    soundfile.write(path, play(TONES, 3.4, RATE_HZ), RATE_HZ, subtype="PCM_16")
    return path


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as instance:
        yield instance


@pytest.fixture(scope="module")
def browser(playwright: Playwright, recording: Path) -> Iterator[Browser]:
    with chromium(playwright, require_system("chromium"), microphone=recording) as instance:
        yield instance


class Session:
    """A tab, and what its console complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console",
            lambda line: self.complaints.append(line.text) if line.type == "error" else None,
        )

    @property
    def roll(self) -> dict[str, str]:
        dataset: dict[str, str] = self.page.locator("#roll").evaluate("e => ({...e.dataset})")
        return dataset

    def wait_for_notes(self, count: int) -> None:
        self.page.wait_for_function(
            "count => Number(document.getElementById('roll').dataset.noteCount) >= count",
            arg=count,
        )

    def upload(self, path: Path) -> None:
        self.page.set_input_files("#file", path)
        self.page.wait_for_selector("#takes [aria-current]")
        self.page.wait_for_selector(IDLE)

    def download(self) -> Download:
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Download MIDI").click()
        return download.value


@pytest.fixture
def tab(browser: Browser, tone_server: RunningServer) -> Iterator[Session]:
    """A fresh tab on the page; a complaint on its console fails the test."""
    context = browser.new_context()
    session = Session(context.new_page())
    session.page.goto(tone_server.url)
    yield session
    context.close()
    assert session.complaints == []


def pitches_of(download: Download, path: Path) -> list[int]:
    download.save_as(path)
    return [
        message.note
        for message in mido.MidiFile(path)
        if message.type == "note_on" and message.velocity > 0
    ]


def test_microphone_gives_notes_and_a_midi_file(tab: Session, tmp_path: Path) -> None:
    page = tab.page
    page.get_by_role("button", name="Listen").click()
    page.wait_for_selector(LISTENING)
    expect(page.locator("#delay")).to_have_text(re.compile(r"^\d+ ms$"))
    tab.wait_for_notes(len(TONES))
    assert page.locator("#lag").inner_text() != "–"
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(IDLE)

    assert tab.roll["noteCount"] == str(len(TONES))
    assert tab.roll["openCount"] == "0"
    expect(page.locator("#status")).to_have_text("Ready")
    page.locator("summary", has_text="Notes").click()
    expect(page.locator("#notes tr")).to_have_count(len(TONES))
    assert page.locator("#notes td:first-child").all_inner_texts() == NAMES
    assert pitches_of(tab.download(), tmp_path / "take.mid") == PITCHES


def test_recording_gives_the_notes_that_the_server_finds(
    tab: Session, tone_server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    tab.upload(recording)
    page = tab.page
    expect(page.locator("#take-name")).to_have_text(recording.name)
    expect(page.locator("#note-count")).to_have_text(f"{len(TONES)} notes")
    expect(page.locator("#upload")).to_be_hidden()
    download = tab.download()
    assert download.suggested_filename == "four tones.mid"
    assert pitches_of(download, tmp_path / "file.mid") == PITCHES

    found = _transcribe(tone_server, recording)
    assert [note["pitch"] for note in found] == PITCHES
    page.locator("summary", has_text="Notes").click()
    expect(page.locator("#notes tr")).to_have_count(len(TONES))
    shown = page.locator("#notes td:nth-child(3)").all_inner_texts()
    assert shown == [f"{note['offset_s'] - note['onset_s']:.2f} s" for note in found]


def test_playback_moves_the_cursor_and_lights_keys(tab: Session, recording: Path) -> None:
    tab.upload(recording)
    page = tab.page
    page.get_by_role("button", name="Play", exact=True).click()
    for name in NAMES[:3]:
        page.wait_for_selector(f"#roll[data-sounding='{name}']")
    page.get_by_role("button", name="Pause").click()
    stopped = page.locator("#position").inner_text()
    assert stopped != "0:00.0"
    page.get_by_role("button", name="Play", exact=True).click()
    # It ends by itself, at the end of the take.
    page.wait_for_selector("#play[aria-label=Play]")
    expect(page.locator("#length")).to_have_text(f"/ {page.locator('#position').inner_text()}")


def test_roll_answers_to_the_keyboard(tab: Session, recording: Path) -> None:
    tab.upload(recording)
    page = tab.page
    roll = page.get_by_role("img", name="Piano roll, 4 notes")
    roll.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#position")).to_have_text("0:01.0")
    page.keyboard.press("End")
    expect(page.locator("#position")).to_have_text("0:03.4")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_pointing_at_a_note_moves_the_cursor_there(tab: Session, recording: Path) -> None:
    tab.upload(recording)
    page = tab.page
    box = page.locator("#overview").bounding_box()
    assert box is not None
    # The A5 sounds from 1.2 to 1.6 of 3.4 seconds.
    page.mouse.click(box["x"] + box["width"] * 1.4 / 3.4, box["y"] + box["height"] / 2)
    page.wait_for_selector("#roll[data-sounding='A5']")


def test_every_control_has_a_name(tab: Session, recording: Path) -> None:
    tab.upload(recording)
    nameless = tab.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, progress, canvas')]
          .filter((e) => !e.closest('[aria-hidden=true], [hidden]'))
          .filter((e) => !(e.ariaLabel || e.innerText || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("width", [390, 860, 1280])
def test_no_sideways_scrolling(tab: Session, width: int) -> None:
    tab.page.set_viewport_size({"width": width, "height": 800})
    expect(tab.page.get_by_role("button", name="Listen")).to_be_visible()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_scheme_repaints_page_and_roll(tab: Session) -> None:
    look = """() => {
      const roll = document.getElementById('roll');
      const { data } = roll.getContext('2d').getImageData(roll.width - 3, 3, 1, 1);
      return { page: getComputedStyle(document.body).backgroundColor, roll: [...data] };
    }"""
    tab.page.emulate_media(color_scheme="light")
    tab.page.wait_for_function(f"() => ({look})().roll[0] > 150")  # once it is painted at all
    light = tab.page.evaluate(look)
    tab.page.emulate_media(color_scheme="dark")
    tab.page.wait_for_function(f"light => ({look})().roll[0] < light - 100", arg=light["roll"][0])
    assert tab.page.evaluate(look)["page"] != light["page"]


def test_two_takes_can_be_compared(tab: Session, recording: Path, tmp_path: Path) -> None:
    tab.upload(recording)
    other = tmp_path / "one tone.flac"
    soundfile.write(other, play(TONES[:1], 1.4, RATE_HZ), RATE_HZ)
    tab.page.set_input_files("#file", other)
    expect(tab.page.locator("#note-count")).to_have_text("1 note")
    tab.page.wait_for_selector(IDLE)
    tab.page.get_by_role("button", name=recording.name).click()
    assert tab.roll["noteCount"] == "4"


def test_undecodable_file_is_told_in_words(tab: Session, tmp_path: Path, recording: Path) -> None:
    noise = tmp_path / "letter.wav"
    noise.write_text("Dear musician, this is no recording.")
    tab.page.set_input_files("#file", noise)
    expect(tab.page.locator("#status.trouble")).to_contain_text("letter.wav: ")
    assert len(tab.page.locator("#status").inner_text()) > len("letter.wav: ")
    # The browser itself notes the refusal; nothing else may be on the console.
    assert all("422" in complaint for complaint in tab.complaints)
    tab.complaints.clear()
    tab.upload(recording)
    assert tab.roll["noteCount"] == "4"


@pytest.mark.parametrize(
    ("fault", "words"),
    [("NotAllowedError", "may not use the microphone"), ("NotFoundError", "is not there")],
)
def test_microphone_that_cannot_be_had(tab: Session, fault: str, words: str) -> None:
    tab.page.evaluate(
        """(name) => {
          navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', name); };
        }""",
        fault,
    )
    tab.page.get_by_role("button", name="Listen").click()
    expect(tab.page.locator("#status.trouble")).to_contain_text(words)
    expect(tab.page.get_by_role("button", name="Listen")).to_be_enabled()


def test_unplugged_microphone_keeps_the_take(tab: Session, tmp_path: Path) -> None:
    tab.page.evaluate(
        """() => {
          const media = navigator.mediaDevices;
          const open = media.getUserMedia.bind(media);
          media.getUserMedia = async (wish) => (window.heard = await open(wish));
        }"""
    )
    tab.page.get_by_role("button", name="Listen").click()
    tab.wait_for_notes(2)
    tab.page.evaluate("heard.getTracks()[0].dispatchEvent(new Event('ended'))")
    expect(tab.page.locator("#status.trouble")).to_contain_text("microphone went away")
    tab.page.wait_for_selector(IDLE)
    assert tab.roll["openCount"] == "0"
    assert pitches_of(tab.download(), tmp_path / "take.mid")[:2] == PITCHES[:2]


def test_lost_server_leaves_no_stuck_note_and_comes_back(
    playwright: Playwright, start_server: StartServer, tmp_path: Path
) -> None:
    long_tone = tmp_path / "long.wav"
    soundfile.write(long_tone, play([(69, 0.3, 59.0)], 60.0, 8000), 8000)
    server = start_server(*TONES_SERVER)
    with chromium(playwright, require_system("chromium"), microphone=long_tone) as browser:
        tab = Session(browser.new_page())
        tab.page.goto(server.url)
        tab.page.get_by_role("button", name="Listen").click()
        tab.page.wait_for_selector("#roll[data-open-count='1']")
        server.process.kill()
        server.process.wait()
        tab.page.wait_for_selector("body[data-state=reconnecting]")
        assert tab.roll["openCount"] == "0"
        expect(tab.page.locator("#status.trouble")).to_contain_text("trying again")

        start_server(TONES_SERVER[0], str(server.port), wait=False)
        tab.page.wait_for_selector(LISTENING)
        tab.wait_for_notes(2)  # the tone still sounds, so the new session finds it anew
        expect(tab.page.locator("#reconnects")).to_have_text("1")
        tab.page.get_by_role("button", name="Stop").click()
        tab.page.wait_for_selector(IDLE)
        assert tab.roll["openCount"] == "0"
        assert set(pitches_of(tab.download(), tmp_path / "take.mid")) == {69}


def test_midi_writer_is_read_back_by_mido(tab: Session, tmp_path: Path) -> None:
    notes = [
        {"pitch": 60, "velocity": 1, "onset": 0.0, "offset": 0.5},
        {"pitch": 60, "velocity": 127, "onset": 0.5, "offset": 0.5},  # struck again, no length
        {"pitch": 127, "velocity": 64, "onset": 20.25, "offset": 4000.0},  # long delta times
    ]
    data = tab.page.evaluate(
        "async (notes) => [...(await import('./midi.js')).midiFile(notes)]", notes
    )
    path = tmp_path / "own.mid"
    path.write_bytes(bytes(data))
    now, events = 0.0, []
    for message in mido.MidiFile(path):
        now += message.time
        if not message.is_meta:
            events.append((message.type, message.note, round(now, 2)))
    assert events == [
        ("note_on", 60, 0.0),
        ("note_off", 60, 0.5),
        ("note_on", 60, 0.5),
        ("note_off", 60, 0.5),
        ("note_on", 127, 20.25),
        ("note_off", 127, 4000.0),
    ]


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
@pytest.mark.parametrize("rate_hz", [11_025, 48_000])
def test_length_is_read_from_the_header(
    tab: Session, tmp_path: Path, suffix: str, rate_hz: int
) -> None:
    path = tmp_path / f"sound.{suffix}"
    soundfile.write(path, play([(69, 0.1, 2.0)], 2.5, rate_hz), rate_hz)
    seconds = tab.page.evaluate(
        """async (bytes) => {
          const { recordingSeconds } = await import('./recording-length.js');
          return recordingSeconds(new Blob([new Uint8Array(bytes)]));
        }""",
        list(path.read_bytes()),
    )
    assert seconds == pytest.approx(soundfile.info(path).duration, abs=1e-3)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"OggS" + bytes(60), b"fLaC" + bytes(60)])
def test_length_of_a_damaged_file_is_unknown(tab: Session, data: bytes) -> None:
    seconds = tab.page.evaluate(
        """async (bytes) => {
          const { recordingSeconds } = await import('./recording-length.js');
          return recordingSeconds(new Blob([new Uint8Array(bytes)])).catch(() => null);
        }""",
        list(data),
    )
    assert seconds is None


def _transcribe(server: RunningServer, path: Path) -> list[dict[str, float]]:
    """The notes of `POST /transcribe`, as any other client gets them."""
    with path.open("rb") as file:
        response = httpx.post(
            f"{server.url}/transcribe",
            files={"file": file},
            headers={"Accept": "application/json"},
            timeout=60,
        )
    notes: list[dict[str, float]] = response.raise_for_status().json()["notes"]
    return notes
