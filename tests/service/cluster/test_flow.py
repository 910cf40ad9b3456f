"""What a client sends ahead of its session is bounded."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.cluster.flow import LOST, TOO_FAR_AHEAD, UnreadLimit

LIMIT = 10_000
CONNECT: Message = {"type": "websocket.connect"}
LEAVE: Message = {"type": "websocket.disconnect", "code": 1000}


class Socket:
    """A client's messages, and what is sent to it."""

    def __init__(self, messages: list[Message]) -> None:
        self.left = list(messages)
        self.told: list[Message] = []

    async def receive(self) -> Message:
        if not self.left:
            await asyncio.Event().wait()
        return self.left.pop(0)

    async def send(self, message: Message) -> None:
        self.told.append(message)


def audio(count: int, size: int = 1000) -> list[Message]:
    return [{"type": "websocket.receive", "bytes": bytes(size)} for _ in range(count)]


async def test_a_session_that_keeps_up_hears_everything() -> None:
    heard: list[Message] = []

    async def session(scope: Scope, receive: Receive, send: Send) -> None:
        while not heard or heard[-1]["type"] != "websocket.disconnect":
            heard.append(await receive())
            await send({"type": "websocket.send", "text": "heard"})
            await asyncio.sleep(0)

    sent = [CONNECT, *audio(100), {"type": "websocket.receive", "text": "stop"}, LEAVE]
    socket = Socket(sent)

    async def receive() -> Message:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return await socket.receive()

    await UnreadLimit(session, LIMIT)({"type": "websocket"}, receive, socket.send)
    assert heard == sent
    assert len(socket.told) == len(sent)


@pytest.mark.parametrize("messages", [audio(100), audio(1000, size=0)])
async def test_a_client_that_is_too_far_ahead_is_cut_off(messages: list[Message]) -> None:
    last: list[Message] = []

    begun = asyncio.Event()

    async def session(scope: Scope, receive: Receive, send: Send) -> None:
        assert await receive() == CONNECT
        begun.set()
        while not socket.told:  # it reads nothing more
            await asyncio.sleep(0)
        last.append(await receive())
        with pytest.raises(OSError, match="closed"):
            await send({"type": "websocket.send", "text": "too late"})

    socket = Socket([CONNECT, *messages])

    async def receive() -> Message:
        if socket.left[0] != CONNECT:
            await begun.wait()
        return await socket.receive()

    await UnreadLimit(session, LIMIT)({"type": "websocket"}, receive, socket.send)
    assert last == [{"type": "websocket.disconnect", "code": TOO_FAR_AHEAD}]
    (close,) = socket.told
    assert (close["type"], close["code"]) == ("websocket.close", TOO_FAR_AHEAD)
    assert socket.left  # nothing more is taken


async def test_a_session_hears_what_came_before_its_proxy_died() -> None:
    heard: list[Message] = []

    async def session(scope: Scope, receive: Receive, send: Send) -> None:
        while not heard or heard[-1]["type"] != "websocket.disconnect":
            heard.append(await receive())

    socket = Socket([CONNECT, *audio(2)])

    async def receive() -> Message:
        if not socket.left:
            raise RuntimeError("the actor died")
        return await socket.receive()

    async with asyncio.timeout(60):
        await UnreadLimit(session, LIMIT)({"type": "websocket"}, receive, socket.send)
    assert heard == [CONNECT, *audio(2), {"type": "websocket.disconnect", "code": LOST}]
    assert not socket.told
