"""The end of a connection whose client does not take what was sent to it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from service.ops.server import AbortingProtocol

PATIENCE_S = 7.0


class Loop:
    """Calls when the test says so."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Any, tuple[Any, ...]]] = []

    def call_later(self, delay_s: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
        self.due.append((delay_s, callback, arguments))
        return cast(asyncio.TimerHandle, None)

    def patience_ends(self) -> None:
        ((delay_s, callback, arguments),) = self.due
        assert delay_s == PATIENCE_S
        self.due.clear()
        callback(*arguments)


class Transport:
    """Holds so many bytes that the network has not taken yet."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.aborted = True


async def ended(transport: Transport) -> Loop:
    """A connection whose session has just ended."""

    async def application(scope: object, receive: object, send: object) -> None:
        return None

    loop = Loop()
    protocol = AbortingProtocol(
        uvicorn.Config(application, log_config=None, interface="asgi3"),
        ServerState(),
        {},
        cast(asyncio.AbstractEventLoop, loop),
        patience_s=PATIENCE_S,
    )
    protocol.transport = cast(asyncio.Transport, transport)
    task = asyncio.create_task(application({}, None, None))
    await task
    protocol.on_task_complete(task)
    return loop


async def test_a_client_that_reads_slowly_gets_all() -> None:
    transport = Transport(unsent_bytes=300)
    loop = await ended(transport)
    for unsent_bytes in (200, 100, 0):
        transport.unsent_bytes = unsent_bytes
        loop.patience_ends()
        assert not transport.aborted


async def test_one_that_takes_nothing_is_cut_off() -> None:
    for unsent_bytes in (300, 0):  # with nothing left it owes its half of the close
        transport = Transport(unsent_bytes)
        loop = await ended(transport)
        loop.patience_ends()
        assert transport.aborted
        assert not loop.due
