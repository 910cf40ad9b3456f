"""Chromium for tests that use the page as a person would."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FAKE_MICROPHONE = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]


@contextmanager
def chromium(
    playwright: Playwright, executable: str, microphone: Path | None = None
) -> Iterator[Browser]:
    """A headless browser; `microphone` is a WAV that its fake microphone plays once."""
    flags = list(FLAGS)
    if microphone is not None:
        flags += FAKE_MICROPHONE
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    browser = playwright.chromium.launch(executable_path=executable, headless=True, args=flags)
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    try:
        yield browser
    finally:
        # Asked to close, a browser whose server was killed takes up to two minutes to comply.
        for process in processes:
            if process["type"] == "browser":
                os.kill(process["id"], signal.SIGKILL)
        browser.close()
