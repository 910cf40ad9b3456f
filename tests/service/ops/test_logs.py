"""Lines for people and for machines; every line of a session has its id."""

import json
import logging
from typing import Literal

import pytest

from service.ops.logs import configure, session_id


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_line_of_a_session_has_its_id_and_all_else_there_is(
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
    said = capsys.readouterr()
    assert said.out == ""
    if log_format == "text":
        assert "service.test: closed after 3 s [9f0c] reason=stop notes=2" in said.err
        return
    line = json.loads(said.err)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "service.test",
        "message": "closed after 3 s",
        "session_id": "9f0c",
        **fields,
    }
