"""`python -m tests.screenshot AUDIO OUT.png`: the page with a real transcription on its roll.

Starts the service with the shipped weights, drops the recording on the page as a user would,
and takes the picture once the transcription is done.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import soundfile
from playwright.sync_api import sync_playwright

from tests.conftest import require_system
from tests.service.page.browser import chromium
from tests.service.servers import server_starter

ZOOM_STEP = 1.5  # of one press on "Zoom in"
EASING_MS = 1000  # the roll glides to its place
TRANSCRIPTION_TIMEOUT_MS = 600_000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Take a picture of a transcription on the page.")
    parser.add_argument("audio", type=Path, help="WAV, FLAC, OGG or MP3")
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument("--model", help="weights other than those the service starts with")
    parser.add_argument("--seconds", type=float, default=14.0, help="how much the roll shows")
    parser.add_argument("--at", type=float, default=6.0, help="where the cursor stands, in s")
    chosen = parser.parse_args(arguments)
    length_s = soundfile.info(chosen.audio).duration
    presses = max(0, round(math.log(length_s / chosen.seconds, ZOOM_STEP)))

    with (
        tempfile.TemporaryDirectory() as folder,
        server_starter(Path(folder)) as start,
        sync_playwright() as playwright,
        chromium(playwright, require_system("chromium")) as browser,
    ):
        weights = ["--model", chosen.model] if chosen.model else []
        server = start("service", "--port", "{port}", *weights)
        page = browser.new_page(viewport={"width": 1280, "height": 852}, device_scale_factor=1.5)
        page.goto(server.url)
        page.set_input_files("#file", chosen.audio)
        page.wait_for_selector("#takes [aria-current]", timeout=TRANSCRIPTION_TIMEOUT_MS)
        page.locator("#seek").fill(f"{min(chosen.at, length_s):.2f}")
        for _ in range(presses):
            page.get_by_role("button", name="Zoom in").click()
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(EASING_MS)
        page.screenshot(path=chosen.picture)


if __name__ == "__main__":
    main()
