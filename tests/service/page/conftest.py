"""Fixtures of the tests of the page: one browser for all of them, and recordings.

The fake microphone repeats four tones, so a page that misses some while it loads receives them
later. The model detects pure tones, so the notes are exact.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.conftest import require_system
from tests.fakes import play
from tests.service.page.browser import TIMEOUT_MS, Tab, chromium, fresh_tab
from tests.service.servers import RunningServer

RATE_HZ = 48_000
# (pitch, onset, offset) in seconds
TONES = [(69, 0.5, 1.0), (81, 1.2, 1.6), (57, 1.8, 2.4), (69, 2.6, 3.0)]
DURATION_S = 3.4
LONG_TONES = [(69, 0.5, 20.0), (81, 21.0, 40.0), (57, 41.0, 60.0)]
LONG_S = 62.0
BEAT_S = 0.6  # beat period of the tune
NAMES = ["A4", "A5", "A3", "A4"]
PITCHES = [pitch for pitch, _, _ in TONES]

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture(scope="package")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "four tones.wav"
    soundfile.write(path, play(TONES, DURATION_S, RATE_HZ), RATE_HZ, subtype="PCM_16")
    return path


@pytest.fixture(scope="package")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of sixteen beats."""
    path = tmp_path_factory.mktemp("tunes") / "tune.wav"
    pitches = [57, 69, 81, 69] * 4
    notes = [(p, BEAT_S * (n + 1), BEAT_S * (n + 1.9)) for n, p in enumerate(pitches)]
    with soundfile.SoundFile(path, "w", RATE_HZ, 1) as file:
        file.title = "Tune in A"
        file.write(play(notes, BEAT_S * 18, RATE_HZ).astype(np.float32))
    return path


@pytest.fixture(scope="package")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of long tones, so that even a slow machine shows each while it sounds."""
    path = tmp_path_factory.mktemp("recordings") / "long tones.wav"
    soundfile.write(path, play(LONG_TONES, LONG_S, 8000), 8000, subtype="PCM_16")
    return path


@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as instance:
        yield instance


@pytest.fixture(scope="package")
def browser(playwright: Playwright, recording: Path) -> Iterator[Browser]:
    # Debian's shell without a window needs a third of the CPU time of the complete browser.
    executable = shutil.which("chromium-headless-shell") or require_system("chromium")
    with chromium(playwright, executable, microphone=recording) as instance:
        yield instance


@pytest.fixture
def tab(browser: Browser, server: RunningServer) -> Iterator[Tab]:
    yield from fresh_tab(browser, server)


@pytest.fixture(scope="module")
def bench(browser: Browser, server: RunningServer) -> Iterator[Tab]:
    """Tab for tests of single modules of the page, shared by the tests of a file."""
    yield from fresh_tab(browser, server)
