"""Chromium and a server process for tests that use the page as a person would."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright

REPOSITORY = Path(__file__).resolve().parent.parent.parent
START_S = 60.0
STOP_S = 20.0

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


@contextmanager
def chromium(
    playwright: Playwright, executable: str, microphone: Path | None = None
) -> Iterator[Browser]:
    """A headless browser; `microphone` is a WAV that its fake microphone plays once."""
    flags = list(FLAGS)
    if microphone is not None:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    browser = playwright.chromium.launch(executable_path=executable, headless=True, args=flags)
    try:
        yield browser
    finally:
        browser.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ServerProcess:
    """A service in its own process, ready when `start` returns."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def fake(cls, log: Path) -> ServerProcess:
        """The service with the model that hears pure tones."""
        port = free_port()
        return cls([sys.executable, "-m", "tests.service.serve_fake", str(port)], port, log)

    @classmethod
    def shipped(cls, log: Path, model: str | None = None) -> ServerProcess:
        """The service as a user starts it, with the weights in the package or with others."""
        port = free_port()
        command = [sys.executable, "-m", "service", "--port", str(port)]
        return cls(command + (["--model", model] if model else []), port, log)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start:\n{self._log.read_text()}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def kill(self) -> None:
        """As a crash or a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()
