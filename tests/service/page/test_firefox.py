"""The page in Firefox, driven by WebDriver BiDi, which Firefox speaks itself."""

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

from tests.service.page.browser import PATIENCE_MS
from tests.service.page.conftest import NAMES, PITCHES
from tests.service.servers import RunningServer

ADDRESS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
PITCHES_NOW = "import('./app.js').then(({ stage }) => stage.take.notes.map((n) => n.pitch).join())"


class Firefox:
    """One tab of a Firefox. The page's errors are in `errors`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count()
        self.errors: list[str] = []
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self._tab = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE_MS / 1000))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == number:
                assert message["type"] == "success", message
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        self.send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def run(self, expression: str) -> dict[str, Any]:
        """The value of an expression, or what its promise resolves with."""
        target = {"context": self._tab}
        answer = self.send(
            "script.evaluate", expression=expression, target=target, awaitPromise=True
        )
        assert answer["type"] == "success", answer
        value: dict[str, Any] = answer["result"]
        return value

    def wait_for(self, expression: str, value: Any) -> None:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while (found := self.run(expression).get("value")) != value:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def choose_file(self, selector: str, file: Path) -> None:
        node = self.run(f"document.querySelector('{selector}')")["sharedId"]
        self.send(
            "input.setFiles", context=self._tab, element={"sharedId": node}, files=[str(file)]
        )

    def press(self, *keys: str) -> None:
        """Press keys together; names as in WebDriver."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        actions = [{"type": "key", "id": "keyboard", "actions": [*downs, *ups]}]
        self.send("input.performActions", context=self._tab, actions=actions)


@contextmanager
def firefox(executable: str, folder: Path) -> Iterator[Firefox]:
    arguments = ["--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0"]
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen([executable, *arguments], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not (address := ADDRESS.search(log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        with connect(f"{address[1]}/session", max_size=None) as socket:
            yield Firefox(socket)
    finally:
        process.kill()
        process.wait()


def test_a_recording_is_transcribed_edited_and_kept(
    server: RunningServer, recording: Path, tmp_path: Path
) -> None:
    pytest.importorskip("verovio", reason="the extra score")
    executable = shutil.which("firefox-esr") or shutil.which("firefox")
    if executable is None:  # continuous integration has Chromium alone
        pytest.skip("firefox is not installed on this machine")
    with firefox(executable, tmp_path) as browser:
        browser.open(server.url)
        browser.choose_file("#file", recording)
        browser.wait_for("document.querySelectorAll('#takes li').length", 1)
        browser.wait_for("document.body.dataset.state", "idle")
        browser.run("document.querySelector('#notes-panel').open = true")
        names = "[...document.querySelectorAll('#notes td:first-child')].map((e) => e.textContent)"
        browser.wait_for(f"{names}.join()", ",".join(NAMES))
        browser.run("document.querySelector('#edit').click()")
        browser.run("document.querySelector('#roll').focus()")
        browser.press("\ue009", "a")  # Ctrl
        browser.press("\ue013")  # arrow up
        moved = ",".join(str(pitch + 1) for pitch in PITCHES)
        browser.wait_for(PITCHES_NOW, moved)
        browser.wait_for("import('./app.js').then(({ stage }) => stage.take.kept)", True)
        browser.open(server.url)
        browser.wait_for(PITCHES_NOW, moved)
        browser.run("document.querySelector('#tab-score').click()")
        written = "document.querySelectorAll('#score-page g.note').length"
        browser.wait_for(f"{written} >= {len(PITCHES)}", True)
        assert browser.errors == []
