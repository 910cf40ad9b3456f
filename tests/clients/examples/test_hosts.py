"""The example hosts find the notes of a recording with nothing of this package."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.clients.examples.conftest import TUNE
from tests.conftest import require_system
from tests.paths import REPOSITORY
from tests.service.page.browser import PATIENCE_MS, chromium

EXAMPLES = REPOSITORY / "clients" / "examples"
ALONE = """
import runpy, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "model", "service", "scipy", "soundfile"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
Found = list[tuple[float, int]]  # (onset in s, pitch)


def found_in(lines: str) -> Found:
    rows = [line.split() for line in lines.splitlines()]
    return sorted((float(onset), int(pitch)) for onset, _, pitch in rows)


def check(found: Found) -> None:
    for pitch, onset in TUNE:
        assert any(p == pitch and abs(s - onset) < 0.05 for s, p in found), (pitch, onset, found)
    assert len(found) < 3 * len(TUNE)


def run_python_host(live_onnx: Path, tune: Path) -> Found:
    host = [str(EXAMPLES / "onnx_host.py"), str(live_onnx / "live.step.onnx"), str(tune)]
    run = subprocess.run(
        [sys.executable, "-c", ALONE, *host], capture_output=True, text=True, cwd=live_onnx
    )
    assert run.returncode == 0, run.stderr
    return found_in(run.stdout)


def test_host_of_numpy_and_onnxruntime_alone(live_onnx: Path, tune: Path) -> None:
    check(run_python_host(live_onnx, tune))


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(live_onnx: Path, tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """The page, the model, and the runtime as npm has it."""
    folder = tmp_path / "browser"
    shutil.copytree(EXAMPLES / "browser", folder, ignore=shutil.ignore_patterns("node_modules"))
    for name in ("live.step.onnx", "live.step.onnx.json"):
        shutil.copy(live_onnx / name, folder)
    install = [require_system("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True)
    if done.returncode and os.environ.get("RSE_REQUIRE_SYSTEM", "0") in ("", "0"):
        pytest.skip("npm cannot install onnxruntime-web on this machine")
    assert done.returncode == 0, done.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_page_transcribes_with_its_server_gone(
    site: ThreadingHTTPServer, live_onnx: Path, tune: Path
) -> None:
    with (
        sync_playwright() as playwright,
        chromium(playwright, require_system("chromium")) as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"http://127.0.0.1:{site.server_port}/")
        page.wait_for_function("document.querySelector('output').value.startsWith('Ready')")
        site.shutdown()
        page.context.set_offline(True)
        page.set_input_files("input", tune)
        page.wait_for_function("document.querySelector('output').value.includes(' notes in ')")
        found = found_in(page.locator("pre").inner_text())
    check(found)
    assert [pitch for _, pitch in found] == [pitch for _, pitch in run_python_host(live_onnx, tune)]
