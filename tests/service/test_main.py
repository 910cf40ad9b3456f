"""Tests of `rse-transcribe serve` before it serves."""

import subprocess
import sys

import pytest
from fastapi import FastAPI

from service.__main__ import address_to_open, main
from service.server import server_config
from service.settings import Settings
from tests.commands import run


def test_address_to_open_is_a_reachable_host() -> None:
    assert address_to_open("0.0.0.0", 8000) == "http://127.0.0.1:8000"
    assert address_to_open("::", 8000) == "http://[::1]:8000"
    assert address_to_open("music.local", 80) == "http://music.local:80"


def test_idle_timeout_is_not_rounded() -> None:
    assert server_config(FastAPI(), Settings(idle_timeout_s=0.4)).timeout_keep_alive == 0.4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nothing-of-that-name"], "nothing-of-that-name"),
        (["--port", "70000"], "port"),
        (["--device", "gpu"], "device must match"),
        (["--device", "cuda:99"], "invalid device: 'cuda:99' is not available"),
        ([], "  max_sessions: expected auto or an integer from 1 to 100000, got 'none'\n"),
    ],
)
def test_invalid_option_or_setting_exits_with_status_2(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    if not arguments:
        monkeypatch.setenv("RSE_MAX_SESSIONS", "none")
    status, _, error = run(main, *arguments)
    assert status == 2
    assert message in error


def test_command_starts_without_heavy_imports() -> None:
    heavy = "torch scipy av partitura music21 verovio typst".split()
    code = f"import sys, service.__main__; print(*(sys.modules.keys() & {heavy!r}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
