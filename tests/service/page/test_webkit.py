"""The page in WebKit, the engine of Safari, driven by the WebDriver of WebKitGTK."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.page.browser import PATIENCE_MS
from tests.service.page.conftest import PITCHES
from tests.service.servers import RunningServer, reserved_port

MINI_BROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
PITCHES_NOW = "return (await import('./app.js')).stage.take.notes.map(({ pitch }) => pitch)"
SCRIPT = """const done = arguments[arguments.length - 1];
(async () => {{ {} }})().then(
  (value) => done({{ value }}), (error) => done({{ error: `${{error}}` }}))"""


class WebKit:
    """One tab of a WebKit browser."""

    def __init__(self, driver: httpx.Client) -> None:
        self._driver = driver
        browser = {"binary": str(MINI_BROWSERS[-1]), "args": ["--automation"]}
        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": browser}}
        self._session = ""
        session = self.send("session", capabilities=capabilities)["sessionId"]
        self._session = f"session/{session}/"

    def send(self, command: str, **fields: Any) -> Any:
        """The value of a command's response."""
        response = self._driver.post(self._session + command, json=fields)
        assert response.is_success, response.text
        return response.json()["value"]

    def run(self, body: str) -> Any:
        """The result of an async function."""
        answer = self.send("execute/async", script=SCRIPT.format(body), args=[])
        assert "error" not in answer, answer
        return answer.get("value")

    def wait_for(self, body: str, value: Any) -> None:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while (found := self.run(body)) != value:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def choose_file(self, selector: str, file: Path) -> None:
        element = self.send("element", using="css selector", value=selector)
        (number,) = element.values()
        self.send(f"element/{number}/value", text=str(file))

    def press(self, *keys: str) -> None:
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        actions = [{"type": "key", "id": "keyboard", "actions": [*downs, *ups]}]
        self.send("actions", actions=actions)


@contextmanager
def webkit(folder: Path) -> Iterator[WebKit]:
    """A browser on a display of its own."""
    read, write = os.pipe()
    display = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x900x24"], pass_fds=[write]
    )
    os.close(write)
    reservation, port = reserved_port()
    with os.fdopen(read) as number:
        environment = {**os.environ, "DISPLAY": f":{number.readline().strip()}"}
    environment |= {"GDK_BACKEND": "x11", "HOME": str(folder)}
    driver = subprocess.Popen(["WebKitWebDriver", f"--port={port}"], env=environment)
    address = f"http://127.0.0.1:{port}"
    transport = httpx.HTTPTransport(retries=8)  # until the driver listens
    try:
        with httpx.Client(
            base_url=address, transport=transport, timeout=PATIENCE_MS / 1000
        ) as client:
            browser = WebKit(client)
            yield browser
            client.delete(browser._session.rstrip("/"))
    finally:
        for process in (driver, display):
            process.terminate()
            process.wait()
        reservation.close()


def test_a_recording_is_transcribed_edited_and_kept(
    server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    pytest.importorskip("verovio", reason="the extra score")
    if not (MINI_BROWSERS and shutil.which("WebKitWebDriver") and shutil.which("Xvfb")):
        pytest.skip("webkit2gtk-driver and xvfb are not installed on this machine")
    with webkit(tmp_path) as browser:
        browser.send("url", url=server.url)
        browser.run("await (await import('./app.js')).restored")
        browser.choose_file("#file", recording)
        browser.wait_for("return document.querySelectorAll('#takes li').length", 1)
        browser.wait_for(PITCHES_NOW, PITCHES)
        browser.run("document.querySelector('#edit').click()")
        browser.run("document.querySelector('#roll').focus()")
        browser.press("\ue009", "a")  # Ctrl
        browser.press("\ue013")  # arrow up
        moved = [pitch + 1 for pitch in PITCHES]
        browser.wait_for(PITCHES_NOW, moved)
        browser.wait_for("return (await import('./app.js')).stage.take.kept", True)
        browser.send("refresh")
        browser.wait_for(PITCHES_NOW, moved)
        browser.run("document.querySelector('#tab-score').click()")
        written = "return document.querySelectorAll('#score-page g.note').length"
        browser.wait_for(f"{written} >= {len(PITCHES)}", True)
