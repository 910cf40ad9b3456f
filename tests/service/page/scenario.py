"""Scenario for all browsers: transcribe, edit, store and engrave a recording."""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.service.page.browser import TIMEOUT_MS
from tests.service.page.conftest import NAMES, PITCHES

CONTROL, UP = "\ue009", "\ue013"  # keys, as in WebDriver
STAGE = "import('./app.js').then(({ stage }) => "
PITCHES_NOW = f"{STAGE}stage.take.notes.map((n) => n.pitch).join())"


class Tab(ABC):
    """One tab of a browser that is driven by WebDriver."""

    @abstractmethod
    def open(self, url: str) -> None: ...

    @abstractmethod
    def run(self, expression: str) -> Any:
        """Return the value of an expression, or what its promise resolves with."""

    @abstractmethod
    def choose_file(self, selector: str, file: Path) -> None: ...

    @abstractmethod
    def perform(self, actions: list[dict[str, Any]]) -> None:
        """Perform the actions of input devices."""

    def wait_for(self, expression: str, value: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while (result := self.run(expression)) != value:
            assert time.monotonic() < deadline, result
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        """Press keys together."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        ups = [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.perform([{"type": "key", "id": "keyboard", "actions": [*downs, *ups]}])


def transcribe_edit_and_store(tab: Tab, url: str, recording: Path) -> None:
    tab.open(url)
    tab.run("import('./app.js').then(({ restored }) => restored)")
    tab.choose_file("#file", recording)
    tab.wait_for("document.querySelectorAll('#takes li').length", 1)
    tab.wait_for("document.body.dataset.state", "idle")
    tab.run("document.querySelector('#notes-panel').open = true")
    names = "[...document.querySelectorAll('#notes td:first-child')].map((e) => e.textContent)"
    tab.wait_for(f"{names}.join()", ",".join(NAMES))
    tab.run("document.querySelector('#edit').click()")
    tab.run("document.querySelector('#roll').focus()")
    tab.press(CONTROL, "a")
    tab.press(UP)
    raised = ",".join(str(pitch + 1) for pitch in PITCHES)
    tab.wait_for(PITCHES_NOW, raised)
    tab.wait_for(f"{STAGE}stage.take.kept)", True)
    tab.open(url)
    tab.wait_for(PITCHES_NOW, raised)
    tab.run("document.querySelector('#tab-score').click()")
    note_count = "document.querySelectorAll('#score-page g.note').length"
    tab.wait_for(f"{note_count} >= {len(PITCHES)}", True)
