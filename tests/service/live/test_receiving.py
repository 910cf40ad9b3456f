"""Tests of the queue of received websocket messages."""

import asyncio

import pytest

from service.live import session
from service.live.session import (
    MAX_READ_AHEAD_BYTES,
    OVERHEAD_BYTES,
    ClientDisconnectedError,
    Message,
    Receiver,
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
    messages = Receiver(receive)
    for count in (max_count, 2 * max_count):
        for _ in range(2):
            await messages.pause(turns(2 * max_count))
            assert received == count
        for _ in range(max_count):
            assert await messages.next() == data
    assert received == 2 * max_count


async def test_messages_arrive_in_order_and_before_the_disconnect() -> None:
    sent: asyncio.Queue[Message] = asyncio.Queue()
    calls = 0

    def send(*texts: str) -> None:
        for text in texts:
            sent.put_nowait({"type": "websocket.receive", "text": text})

    async def receive() -> Message:
        nonlocal calls
        calls += 1
        return await sent.get()

    messages = Receiver(receive)
    send("0", "1")
    assert await messages.next() == "0"
    await messages.pause(turns(5))
    assert await messages.next() == "1"
    following = asyncio.create_task(messages.next())
    await turns(5)
    send("2", "3")  # "2" for the task that still receives
    assert (await following, await messages.next()) == ("2", "3")
    send("4")
    sent.put_nowait({"type": "websocket.disconnect"})
    for _ in range(2):
        await messages.pause(turns(5))
    assert await messages.next() == "4"
    with pytest.raises(ClientDisconnectedError):
        await messages.next()
    assert calls == 6  # none after the disconnect


async def turns(count: int) -> None:
    """Let other tasks run ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_pauses_do_not_count_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(session, "monotonic", lambda: now_s)

    async def receive() -> Message:
        return {"type": "websocket.receive", "text": "keepalive"}

    async def wait() -> None:
        nonlocal now_s
        assert (messages.idle_s, messages.without_audio_s) == (0, 0)
        now_s = 14.0

    messages = Receiver(receive)
    now_s = 1.0
    await messages.next()
    now_s = 4.0
    assert (messages.idle_s, messages.without_audio_s) == (3, 4)
    await messages.pause(wait())
    now_s = 15.0
    assert (messages.idle_s, messages.without_audio_s) == (1, 5)
