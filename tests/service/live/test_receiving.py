"""Messages that wait for a session are bounded, also empty ones."""

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
async def test_the_messages_that_wait_are_bounded(data: bytes) -> None:
    received = 0

    async def receive() -> Message:
        nonlocal received
        await asyncio.sleep(0)
        received += 1
        return {"type": "websocket.receive", "bytes": data}

    most = MAX_READ_AHEAD_BYTES // (OVERHEAD_BYTES + len(data)) + 1
    async with ReadAhead(receive) as messages:
        for _ in range(2 * most):
            await asyncio.sleep(0)
        assert received == most
        assert message_payload(await messages.next()) == data


async def test_all_messages_come_before_the_end() -> None:
    sent: list[Message] = [{"type": "websocket.receive", "text": str(n)} for n in range(3)]
    sent.append({"type": "websocket.disconnect"})
    rest = iter(sent)

    async def receive() -> Message:
        return next(rest)

    async with ReadAhead(receive) as messages:
        assert [message_payload(await messages.next()) for _ in range(3)] == ["0", "1", "2"]
        with pytest.raises(ClientDisconnectedError):
            message_payload(await messages.next())
