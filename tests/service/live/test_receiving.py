"""Tests of the queue of received websocket messages."""

import asyncio

import pytest

from service.live.receiving import (
    MAX_READ_AHEAD_BYTES,
    OVERHEAD_BYTES,
    ClientDisconnectedError,
    Message,
    ReadAhead,
    message_payload,
)


@pytest.mark.parametrize("data", [b"", bytes(1000)])
async def test_read_ahead_is_bounded(data: bytes) -> None:
    received = 0

    async def receive() -> Message:
        nonlocal received
        await asyncio.sleep(0)
        received += 1
        return {"type": "websocket.receive", "bytes": data}

    max_count = MAX_READ_AHEAD_BYTES // (OVERHEAD_BYTES + len(data)) + 1
    async with ReadAhead(receive) as messages:
        for _ in range(2 * max_count):
            await asyncio.sleep(0)
        assert received == max_count
        assert message_payload(await messages.next()) == data


async def test_messages_arrive_before_the_disconnect() -> None:
    sent: list[Message] = [{"type": "websocket.receive", "text": str(n)} for n in range(3)]
    sent.append({"type": "websocket.disconnect"})

    async def receive() -> Message:
        return sent.pop(0)

    async with ReadAhead(receive) as messages:
        assert [message_payload(await messages.next()) for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(ClientDisconnectedError):
            message_payload(await messages.next())
