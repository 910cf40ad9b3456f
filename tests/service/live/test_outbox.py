"""The outbox of a session: order, the counter, and how long a client that does not read has."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from service.live.outbox import Outbox
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.server_messages import Flushed

PATIENCE_S = 60.0  # never waited for where the socket takes what it is given
NO_PATIENCE_S = 0.05


class Socket:
    """Keeps what it is sent; may be stuck, or gone."""

    def __init__(self, *, stuck: bool = False, gone: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.stuck = stuck
        self.gone = gone

    async def send_text(self, text: str) -> None:
        if self.gone is not None:
            raise self.gone
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(json.loads(text))


def outbox(socket: Socket, max_messages: int = 4, send_timeout_s: float = PATIENCE_S) -> Outbox:
    return Outbox(cast(WebSocket, socket), max_messages, send_timeout_s)


def flushed(number: int) -> Flushed:
    return Flushed(id=str(number), frame=number)


async def test_a_full_outbox_waits_for_the_socket() -> None:
    socket = Socket()
    box = outbox(socket, max_messages=1)
    await box.put(flushed(0))
    waiting = asyncio.create_task(box.put(flushed(1)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    writer = asyncio.create_task(box.write())
    await waiting
    await box.finish(writer)
    assert [message["id"] for message in socket.sent] == ["0", "1"]


@pytest.mark.parametrize("finishing", [False, True])
async def test_a_client_that_does_not_read_is_given_up(finishing: bool) -> None:
    box = outbox(Socket(stuck=True), max_messages=2, send_timeout_s=NO_PATIENCE_S)
    writer = asyncio.create_task(box.write())
    for number in range(2):
        await box.put(flushed(number))
    with pytest.raises(ProtocolError) as caught:
        await (box.finish(writer) if finishing else put_many(box, 2))
    assert caught.value.code is ErrorCode.SLOW_READER
    writer.cancel()
    await asyncio.wait([writer])


async def put_many(box: Outbox, count: int) -> None:
    for number in range(count):
        await box.put(flushed(number))
