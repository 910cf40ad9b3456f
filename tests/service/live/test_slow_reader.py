"""A client that sends and does not read what it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket

from service.access.clients import Client
from service.engine.engine import Engine
from service.live.session_log import SessionLog
from service.live.websocket import Connection
from service.protocol.faults import CloseCode
from service.settings import Settings
from service.state import ServiceState
from tests.fakes import FakeTranscriber

OUTBOUND = 16


class StuckSocket:
    """Takes the first message and blocks on the second, while its client goes on asking."""

    query_params = QueryParams("encoding=pcm_s16le&sample_rate=22050")

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.received = 0
        self.closed: tuple[int, str] | None = None

    async def receive(self) -> dict[str, str]:
        await asyncio.sleep(0)
        self.received += 1
        return {"type": "websocket.receive", "text": '{"type": "flush", "id": "x"}'}

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))
        if len(self.sent) > 1:
            await asyncio.Event().wait()

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


async def test_a_client_that_does_not_read_is_closed_and_holds_no_memory() -> None:
    socket = StuckSocket()
    # No progress comes in between, however long this takes.
    settings = Settings(
        max_outbound_messages=OUTBOUND,
        send_timeout_s=0.2,
        progress_interval_ms=60_000,
        idle_timeout_s=600,
    )
    state = ServiceState(settings)
    with Engine(FakeTranscriber()) as engine:
        engine.warm_up()
        state.slot.engine = engine
        async with asyncio.timeout(60):
            record = SessionLog(state.metrics, Client("address test"))
            await Connection(cast(WebSocket, socket), state, record).run()
        assert socket.closed == (CloseCode.TIMEOUT, "slow_reader")
        assert [message["type"] for message in socket.sent] == ["ready", "flushed"]
        assert engine.queued_windows == 0
    # What waited for it was bounded on both sides: the queue out, and the inbox behind it.
    assert socket.received < 2_000
