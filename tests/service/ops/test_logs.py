"""Lines for people and for machines; every line of a session has its id."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from service.ops.logs import (
    JsonFormatter,
    SessionFilter,
    configure,
    session_id,
)
from service.settings import LogFormat


def record(text: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("service.x", logging.INFO, "x.py", 1, text, arguments, None)
    made.fields = fields
    SessionFilter().filter(made)
    return made


@contextmanager
def in_session(name: str) -> Iterator[None]:
    token = session_id.set(name)
    try:
        yield
    finally:
        session_id.reset(token)


def test_a_json_line_has_all_there_is() -> None:
    with in_session("9f0c"):
        line = JsonFormatter().format(record("closed after %d s", 3, reason="stop", notes=2))
    assert "\n" not in line
    parsed = json.loads(line)
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {
        "level": "info",
        "logger": "service.x",
        "message": "closed after 3 s",
        "session_id": "9f0c",
        "reason": "stop",
        "notes": 2,
    }


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_configured_logs_go_to_standard_error(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        configure(log_format)
        logging.getLogger("service.test").info("hello")
    finally:
        root.setLevel(level)
    said = capsys.readouterr()
    assert said.out == ""
    assert "hello" in said.err
    assert said.err.startswith("{") == (log_format is LogFormat.JSON)
