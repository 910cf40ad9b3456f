"""Chromium for tests that use the page as a user would."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import mido
from playwright.sync_api import Browser, CDPSession, FloatRect, Page, Playwright

from tests.service.servers import START_S, RunningServer

TIMEOUT_MS = 60_000  # long, for busy machines
LISTENING = "body[data-state=listening]"
IDLE = "body[data-state=idle]"

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
]

SYNTHESISER = """() => {
  window.sent = [];
  const port = { id: 'p', name: 'Synth', state: 'connected', send: (m) => sent.push([...m]) };
  const access = Object.assign(new EventTarget(), { outputs: new Map([['p', port]]) });
  navigator.requestMIDIAccess = async () => access;
}"""
"""Script that adds a MIDI port and records its messages in `sent`."""

ANNOUNCED = """() => {
  window.announced = [];
  const status = document.getElementById('status');
  new MutationObserver(() => announced.push(status.textContent))
    .observe(status, { childList: true, characterData: true, subtree: true });
}"""
"""Script that records the texts of the status line in `announced` from now on."""

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
"""Script that replaces the microphone by an endless tone."""


@contextmanager
def chromium(playwright: Playwright, executable: str, microphone: Path) -> Iterator[Browser]:
    """Yield a headless browser. Its fake microphone repeats the WAV file `microphone`."""
    flags = [*FLAGS, f"--use-file-for-fake-audio-capture={microphone}"]
    browser = playwright.chromium.launch(
        executable_path=executable, headless=True, args=flags, timeout=1000 * START_S
    )
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    try:
        yield browser
    finally:
        # A browser whose server was killed needs up to two minutes to close.
        for process in processes:
            if process["type"] == "browser":
                os.kill(process["id"], signal.SIGKILL)
        browser.close()


class Tab:
    """Tab that shows the page. `console_errors` has the errors of its scripts and its console."""

    def __init__(self, page: Page, server: RunningServer, url: str | None = None) -> None:
        self.page = page
        self.server = server
        self.console_errors: list[str] = []
        self._fingers: CDPSession | None = None
        self.starts: list[dict[str, Any]] = []  # the messages that opened sessions
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on(
            "console",
            lambda line: self.console_errors.append(line.text) if line.type == "error" else None,
        )
        page.on("websocket", lambda socket: socket.on("framesent", self._sent))
        page.goto(url or server.url)

    def _sent(self, message: str | bytes) -> None:
        if isinstance(message, str) and '"start"' in message:
            self.starts.append(json.loads(message))

    @property
    def roll(self) -> dict[str, str]:
        """Data attributes of the roll, which describe the picture."""
        dataset: dict[str, str] = self.page.locator("#roll").evaluate("e => ({...e.dataset})")
        return dataset

    @property
    def view(self) -> dict[str, float]:
        """View of the roll after gliding: `start` and `span` in s, `low` and `high` in pitches."""
        view: dict[str, float] = self.page.evaluate(
            "async () => (await import('./app.js')).stage.roll.view"
        )
        return view

    def box(self, selector: str) -> FloatRect:
        box = self.page.locator(selector).bounding_box()
        assert box is not None, selector
        return box

    def point(self, seconds: float, pitch: float) -> tuple[float, float]:
        """Return the screen position of a time and a pitch, once the roll shows its view."""
        x, y = self.run(
            """async ([seconds, pitch]) => {
              const { roll } = (await import('./app.js')).stage;
              for (const _ of 'ab') await new Promise(requestAnimationFrame);
              const box = document.getElementById('roll').getBoundingClientRect();
              const { start, span, low, high } = roll.view;
              const x = roll.keysWidth + (seconds - start) / span * (box.width - roll.keysWidth);
              const y = 36 + (high - pitch + 0.5) / (high - low + 1) * (box.height - 36);
              return [box.left + x, box.top + y];
            }""",
            [seconds, pitch],
        )
        return x, y

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=4)
        self.page.mouse.up()

    def wait_for_notes(self, count: int) -> None:
        self.page.wait_for_function(
            "count => Number(document.getElementById('roll').dataset.noteCount) >= count", arg=count
        )

    def wait_for_melody(self, names: list[str]) -> None:
        """Wait until the open list of notes has these names in order. Repetitions are ignored:
        on a busy machine the microphone stutters, which splits a tone."""
        self.page.wait_for_function(
            """melody => {
              const cells = [...document.querySelectorAll('#notes td:first-child')];
              const names = cells.map((cell) => cell.textContent);
              return names.filter((name, at) => name !== names[at - 1]).join(' ').includes(melody);
            }""",
            arg=" ".join(names),
        )

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send "touchStart", "touchMove" or "touchEnd" with fingers at these points."""
        self._fingers = self._fingers or self.page.context.new_cdp_session(self.page)
        touch_points = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)]
        self._fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touch_points})

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def connect_synthesiser(self) -> None:
        self.run(SYNTHESISER)
        self.page.locator("#midi-connect").click()
        self.page.locator("#midi-port").select_option("Synth")

    def listen(self) -> None:
        self.press("Listen")
        self.page.wait_for_selector(LISTENING)

    def stop(self) -> None:
        self.press("Stop")
        self.page.wait_for_selector(IDLE)

    def upload(self, *paths: Path) -> None:
        """Upload recordings and wait until all of them are takes."""
        takes = self.page.locator("#takes li").count() + len(paths)
        self.page.set_input_files("#file", list(paths))
        self.page.wait_for_function(
            "count => document.querySelectorAll('#takes li').length === count", arg=takes
        )
        self.page.wait_for_selector(IDLE)

    def download(self, folder: Path, name: str = "Download MIDI") -> Path:
        """Press the button with this name and save the file in a folder."""
        with self.page.expect_download() as download:
            self.press(name)
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def slide(self, selector: str, value: float) -> None:
        """Move a slider as a user does: the page receives the event immediately."""
        slider = self.page.locator(selector)
        slider.evaluate("e => e.closest('details')?.setAttribute('open', '')")
        slider.fill(f"{value:g}")

    def run(self, script: str, argument: Any = None) -> Any:
        """Return the result of an async function, which may import modules of the page."""
        return self.page.evaluate(script, argument)

    def until(self, script: str) -> None:
        """Wait until an async function returns a true value."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not self.run(script):
            assert time.monotonic() < deadline, script
            self.page.wait_for_timeout(100)


def pitches_of(midi: Path) -> list[int]:
    return [m.note for m in mido.MidiFile(midi) if m.type == "note_on" and m.velocity > 0]


def notes_of(json_file: Path) -> list[dict[str, float]]:
    notes: list[dict[str, float]] = json.loads(json_file.read_text())["notes"]
    return notes


def notes_from_server(
    server: RunningServer, recording: Path, **options: float
) -> list[dict[str, float]]:
    """Return the notes of `POST /transcribe`, with the fields of the page's JSON."""
    with recording.open("rb") as file:
        response = httpx.post(
            f"{server.url}/transcribe",
            files={"file": file},
            params={**options, "answer": "json"},
            timeout=TIMEOUT_MS / 1000,
        )
    notes = response.raise_for_status().json()["notes"]
    names = ("pitch", "velocity", "confidence", "onset_s", "offset_s")
    return [{name: note[name] for name in names} for note in notes]


def fresh_tab(browser: Browser, server: RunningServer) -> Iterator[Tab]:
    """Yield a tab in a new context. An error on its console fails the test. The roll does not
    glide, so that tests need not wait for it."""
    context = browser.new_context(reduced_motion="reduce")
    tab = Tab(context.new_page(), server)
    yield tab
    context.close()
    assert tab.console_errors == []
