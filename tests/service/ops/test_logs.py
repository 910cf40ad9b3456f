"""Tests of the log formats."""

import json
import logging
import sys
from typing import Literal

import pytest

from service.ops.logs import JsonFormatter, TextFormatter, configure, session_id


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_client_text_cannot_forge_log_lines(log_format: Literal["text", "json"]) -> None:
    forged = "a\n2026-01-01 INFO forged\r\x1b[2J\u2028\x85\u202eb\ud800é"
    formatter = JsonFormatter() if log_format == "json" else TextFormatter()
    record = logging.LogRecord("service", logging.INFO, "", 0, "named %s", (forged,), None)
    record.fields = {"client": forged}
    lines = formatter.format(record).splitlines()
    assert len(lines) == 1
    assert all(c.isprintable() for c in lines[0])
    try:
        raise ValueError(forged)
    except ValueError:
        record.exc_info = sys.exc_info()
    first, *rest = formatter.format(record).splitlines()
    assert "named a" in first
    assert all(line.startswith("  ") for line in rest)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_log_line_has_session_id_and_fields(
    log_format: Literal["text", "json"],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        configure(log_format)
        token = session_id.set("9f0c")
        fields = {"reason": "stop", "notes": 2}
        logging.getLogger("service.test").info("closed after %d s", 3, extra={"fields": fields})
        session_id.reset(token)
    finally:
        root.setLevel(level)
    output = capsys.readouterr()
    assert output.out == ""
    if log_format == "text":
        assert "service.test: closed after 3 s [9f0c] reason=stop notes=2" in output.err
        return
    line = json.loads(output.err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "service.test",
        "message": "closed after 3 s",
        "session_id": "9f0c",
        **fields,
    }
