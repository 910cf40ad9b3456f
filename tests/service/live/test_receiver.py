"""Reading a socket: nothing is lost by waiting."""

import asyncio
from typing import Any

import pytest

from service.live import receiver
from service.live.receiver import Receiver, VanishedError
from service.settings import Settings

CHECK_S = 0.01


class SlowSocket:
    """Takes each message from its queue and hands it over only after a while, as servers may."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = list(messages)

    async def receive(self) -> dict[str, Any]:
        message = self.messages.pop(0)
        await asyncio.sleep(3 * CHECK_S)
        if not message:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "bytes": message}


async def test_no_message_is_lost_between_two_looks_for_a_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver, "_DRAIN_CHECK_S", CHECK_S)
    socket = SlowSocket(b"a", b"b", b"")
    reader = Receiver(socket, Settings(), asyncio.Event())  # type: ignore[arg-type]
    assert [await reader.receive() for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(VanishedError):
        await reader.receive()
    reader.close()
