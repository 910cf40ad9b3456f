"""What comes off a client's socket: messages, the limits on them, and the ends that it can have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from service.live.receiver import DrainingError, Receiver, VanishedError
from service.protocol.faults import ErrorCode, ProtocolError
from service.settings import Settings


class Socket:
    """Says what it was given, then nothing."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)

    async def receive(self) -> dict[str, Any]:
        if not self.events:
            await asyncio.Event().wait()
        return self.events.pop(0)


def said(**content: str | bytes) -> dict[str, Any]:
    return {"type": "websocket.receive", **content}


def receiver(*events: dict[str, Any], draining: bool = False, **settings: Any) -> Receiver:
    going_down = asyncio.Event()
    if draining:
        going_down.set()
    return Receiver(cast(WebSocket, Socket(*events)), Settings(**settings), going_down)


async def test_text_and_audio_come_as_they_were_sent() -> None:
    reading = receiver(said(text="{}"), said(bytes=b"\0\1"), said(bytes=b""))
    assert [await reading.receive() for _ in range(3)] == ["{}", b"\0\1", b""]


@pytest.mark.parametrize("content", [{"bytes": bytes(1025)}, {"text": "\N{EIGHTH NOTE}" * 342}])
async def test_a_message_is_measured_in_bytes(content: dict[str, str | bytes]) -> None:
    with pytest.raises(ProtocolError) as caught:
        await receiver(said(**content), max_message_bytes=1024).receive()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize(
    ("max_session_s", "code"), [(60.0, ErrorCode.IDLE_TIMEOUT), (1.0, ErrorCode.SESSION_TOO_LONG)]
)
async def test_silence_ends_at_the_limit_that_comes_first(
    max_session_s: float, code: ErrorCode
) -> None:
    silent = receiver(idle_timeout_s=1.0, max_session_s=max_session_s)
    await asyncio.sleep(0.05)  # of the session's time, not of the silence
    with pytest.raises(ProtocolError) as caught:
        await silent.receive()
    assert caught.value.code is code


async def test_a_client_that_leaves_has_vanished() -> None:
    with pytest.raises(VanishedError):
        await receiver({"type": "websocket.disconnect"}).receive()


async def test_the_end_of_the_server_comes_before_the_next_message() -> None:
    with pytest.raises(DrainingError):
        await receiver(said(text="{}"), draining=True).receive()
