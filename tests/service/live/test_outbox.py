"""The outbox waits for a client that reads, however slowly, and not for one that does not."""

import asyncio

import pytest
from starlette.websockets import WebSocket

from service.live.outbox import Outbox
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.server_messages import Flushed

PATIENCE_S = 0.5


class SlowSocket(WebSocket):
    """Takes a message every ``pause_s``."""

    def __init__(self, pause_s: float) -> None:
        self.read: list[str] = []
        self._pause_s = pause_s

    async def send_text(self, data: str) -> None:
        await asyncio.sleep(self._pause_s)
        self.read.append(data)


async def finish(socket: SlowSocket, messages: int) -> None:
    outbox = Outbox(socket, messages + 1, PATIENCE_S)
    for number in range(messages):
        await outbox.put(Flushed(id=str(number), frame=0))
    writer = asyncio.create_task(outbox.write())
    try:
        await outbox.finish(writer)
    finally:
        writer.cancel()


async def test_a_slow_client_that_reads_on_gets_everything() -> None:
    socket = SlowSocket(0.4 * PATIENCE_S)
    await finish(socket, 8)
    assert len(socket.read) == 8


async def test_a_client_that_reads_nothing_is_given_up() -> None:
    socket = SlowSocket(100)
    with pytest.raises(ProtocolError, match=r"has read nothing for 0\.5 s") as caught:
        async with asyncio.timeout(10):
            await finish(socket, 2)
    assert caught.value.code is ErrorCode.SLOW_READER
