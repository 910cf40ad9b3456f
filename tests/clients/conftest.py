"""Patience for busy machines: clients wait longer for a connection and for messages."""

import pytest

from clients import microphone, session


@pytest.fixture(autouse=True)
def _long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", 60.0)
    monkeypatch.setattr(microphone, "STALL_TIMEOUT_S", 60.0)
