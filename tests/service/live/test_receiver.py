"""Reading a socket: limits of time, and nothing lost by waiting."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from service.live import receiver
from service.live.receiver import DrainingError, Receiver, VanishedError
from service.protocol.faults import ErrorCode, ProtocolError
from service.settings import Settings

CHECK_S = 0.01


class SlowSocket:
    """Takes each message from its queue and hands it over only after a while, as servers may."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = list(messages)

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.Event().wait()
        message = self.messages.pop(0)
        await asyncio.sleep(3 * CHECK_S)
        if not message:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "bytes": message}


@contextmanager
def reading(
    monkeypatch: pytest.MonkeyPatch, socket: SlowSocket, **settings: Any
) -> Iterator[tuple[Receiver, asyncio.Event]]:
    monkeypatch.setattr(receiver, "_DRAIN_CHECK_S", CHECK_S)
    draining = asyncio.Event()
    reader = Receiver(socket, Settings(**settings), draining)  # type: ignore[arg-type]
    yield reader, draining
    reader.close()


async def test_no_message_is_lost_between_two_looks_for_a_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reading(monkeypatch, SlowSocket(b"a", b"b", b"")) as (reader, _):
        assert [await reader.receive() for _ in range(2)] == [b"a", b"b"]
        with pytest.raises(VanishedError):
            await reader.receive()


async def test_a_silent_client_does_not_delay_a_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    with reading(monkeypatch, SlowSocket()) as (reader, draining):
        waiting = asyncio.create_task(reader.receive())
        await asyncio.sleep(2 * CHECK_S)
        draining.set()
        with pytest.raises(DrainingError):
            await waiting


async def test_a_silent_client_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        reading(monkeypatch, SlowSocket(), idle_timeout_s=0.1) as (reader, _),
        pytest.raises(ProtocolError) as caught,
    ):
        await reader.receive()
    assert caught.value.code == ErrorCode.IDLE_TIMEOUT
