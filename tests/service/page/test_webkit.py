"""Test of the page in WebKit, the engine of Safari, which WebKitGTK's WebDriver drives."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.page.browser import TIMEOUT_MS
from tests.service.page.scenario import Tab, transcribe_edit_and_store
from tests.service.servers import RunningServer, reserved_port

MINI_BROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
SCRIPT = """const done = arguments[arguments.length - 1];
Promise.resolve().then(() => {}).then(
  (value) => done({{ value }}), (error) => done({{ error: `${{error}}` }}))"""


class WebKit(Tab):
    """One tab of a WebKit browser."""

    def __init__(self, driver: httpx.Client) -> None:
        self._driver = driver
        browser = {"binary": str(MINI_BROWSERS[-1]), "args": ["--automation"]}
        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": browser}}
        self._session = ""
        session = self.send("session", capabilities=capabilities)["sessionId"]
        self._session = f"session/{session}/"

    def send(self, command: str, **fields: Any) -> Any:
        """Send a command and return the value of its response."""
        response = self._driver.post(self._session + command, json=fields)
        assert response.is_success, response.text
        return response.json()["value"]

    def open(self, url: str) -> None:
        self.send("url", url=url)

    def run(self, expression: str) -> Any:
        response = self.send("execute/async", script=SCRIPT.format(expression), args=[])
        assert "error" not in response, response
        return response.get("value")

    def choose_file(self, selector: str, file: Path) -> None:
        element = self.send("element", using="css selector", value=selector)
        (element_id,) = element.values()
        self.send(f"element/{element_id}/value", text=str(file))

    def perform(self, actions: list[dict[str, Any]]) -> None:
        self.send("actions", actions=actions)


@contextmanager
def webkit(folder: Path) -> Iterator[WebKit]:
    """Start a WebKit browser on a separate virtual display."""
    read, write = os.pipe()
    display = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x900x24"], pass_fds=[write]
    )
    os.close(write)
    reservation, port = reserved_port()
    with os.fdopen(read) as display_number:
        environment = {**os.environ, "DISPLAY": f":{display_number.readline().strip()}"}
    environment |= {"GDK_BACKEND": "x11", "HOME": str(folder)}
    driver = subprocess.Popen(["WebKitWebDriver", f"--port={port}"], env=environment)
    address = f"http://127.0.0.1:{port}"
    transport = httpx.HTTPTransport(retries=8)  # until the driver listens
    try:
        with httpx.Client(
            base_url=address, transport=transport, timeout=TIMEOUT_MS / 1000
        ) as client:
            browser = WebKit(client)
            yield browser
            client.delete(browser._session.rstrip("/"))
    finally:
        for process in (driver, display):
            process.terminate()
            process.wait()
        reservation.close()


def test_recording_is_transcribed_edited_and_stored(
    server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    if not (MINI_BROWSERS and shutil.which("WebKitWebDriver") and shutil.which("Xvfb")):
        pytest.skip("webkit2gtk-driver and xvfb are not installed on this machine")
    with webkit(tmp_path) as browser:
        transcribe_edit_and_store(browser, server.url, recording)
