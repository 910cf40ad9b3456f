"""A wall clock that jumps harms nothing: no duration is measured with it."""

from __future__ import annotations

import time

import pytest

from tests.service.apps import serving, transcribe


def test_sessions_go_on_while_the_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    now, jump = time.time, -86_400.0

    def jumping() -> float:
        nonlocal jump
        jump *= -2
        return now() + jump

    with serving() as (client, _):
        before = transcribe(client)
        monkeypatch.setattr(time, "time", jumping)
        assert transcribe(client) == before
