"""Test of the page in Firefox, which WebDriver BiDi drives."""

import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.service.page.browser import TIMEOUT_MS
from tests.service.page.scenario import Tab, transcribe_edit_and_store
from tests.service.servers import RunningServer

ADDRESS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


class Firefox(Tab):
    """One tab of a Firefox. The page's errors are in `errors`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count()
        self.errors: list[str] = []
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self._tab = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        message_id = next(self._ids)
        self._socket.send(json.dumps({"id": message_id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(TIMEOUT_MS / 1000))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == message_id:
                assert message["type"] == "success", message
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        self.send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def run(self, expression: str) -> Any:
        return self._evaluate(expression).get("value")

    def choose_file(self, selector: str, file: Path) -> None:
        node = self._evaluate(f"document.querySelector('{selector}')")["sharedId"]
        self.send(
            "input.setFiles", context=self._tab, element={"sharedId": node}, files=[str(file)]
        )

    def perform(self, actions: list[dict[str, Any]]) -> None:
        self.send("input.performActions", context=self._tab, actions=actions)

    def _evaluate(self, expression: str) -> dict[str, Any]:
        target = {"context": self._tab}
        response = self.send(
            "script.evaluate", expression=expression, target=target, awaitPromise=True
        )
        assert response["type"] == "success", response
        value: dict[str, Any] = response["result"]
        return value


@contextmanager
def firefox(executable: str, folder: Path) -> Iterator[Firefox]:
    arguments = ["--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0"]
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen([executable, *arguments], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while not (address := ADDRESS.search(log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        with connect(f"{address[1]}/session", max_size=None) as socket:
            yield Firefox(socket)
    finally:
        process.kill()
        process.wait()


def test_recording_is_transcribed_edited_and_stored(
    server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    executable = shutil.which("firefox-esr") or shutil.which("firefox")
    if executable is None:  # continuous integration has Chromium alone
        pytest.skip("firefox is not installed on this machine")
    with firefox(executable, tmp_path) as browser:
        transcribe_edit_and_store(browser, server.url, recording)
        assert browser.errors == []
