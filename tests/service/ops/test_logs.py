"""Lines for people and for machines; every line of a session has its id."""

import asyncio
import json
import logging
import signal
from typing import Literal

import pytest

from service.app import create_app
from service.ops.logs import TextFormatter, configure, session_id
from service.server import DrainingServer, server_config
from service.settings import Settings
from tests.service.apps import START, perform, serving


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


def test_a_session_logs_its_options_and_what_became_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "service")
    with serving() as (client, _):
        perform(client, bytes(44_100))
    opened, closed = (
        next(vars(record)["fields"] for record in caplog.records if record.message == message)
        for message in ("session opened", "session closed")
    )
    assert opened["client"] == closed["client"] == "address unknown"
    assert opened["sample_rate"] == START["sample_rate"]
    assert closed["reason"] == "stop"
    assert closed["audio_s"] == pytest.approx(1.0)
    assert {"duration_s", "frames", "notes", "dropped_samples"} <= closed.keys()


async def test_a_drain_does_not_log_as_the_session_that_the_signal_interrupts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "service")
    caplog.handler.setFormatter(TextFormatter())
    settings = Settings()
    app = create_app(settings)
    server = DrainingServer(server_config(app, settings), app.state.service)
    server._loop = asyncio.get_running_loop()
    session_id.set("9f0c")
    server.handle_exit(signal.SIGTERM, None)
    async with asyncio.timeout(10):
        while not server.should_exit:
            await asyncio.sleep(0.01)
    lines = [line for line in caplog.text.splitlines() if "drain" in line]
    assert len(lines) == 2
    assert "9f0c" not in caplog.text
