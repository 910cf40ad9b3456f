"""Messages for the client that the socket has not yet accepted, bounded in number."""

import asyncio
import contextlib
from typing import NoReturn

from starlette.websockets import WebSocket, WebSocketDisconnect

from service.live.receiver import VanishedError
from service.protocol.faults import ErrorCode, ProtocolError
from service.protocol.server_messages import ServerMessage


class Outbox:
    """Messages in sending order.

    Several tasks put and one writes. `put` waits while the outbox is full, at most
    `send_timeout_s`: a client that reads nothing for that long is given up.
    """

    def __init__(self, websocket: WebSocket, max_messages: int, send_timeout_s: float) -> None:
        self._websocket = websocket
        self._send_timeout_s = send_timeout_s
        self._messages: asyncio.Queue[ServerMessage | None] = asyncio.Queue(max_messages)
        self._seq = 0

    async def put(self, message: ServerMessage | None) -> None:
        """Adds a message, or None behind the last; raises `ProtocolError` if there is no room in
        time."""
        with contextlib.suppress(asyncio.QueueFull):
            return self._messages.put_nowait(message)
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await self._messages.put(message)
        except TimeoutError:
            self._too_slow()

    async def write(self) -> None:
        while (message := await self._messages.get()) is not None:
            await self.send(message)

    async def finish(self, writer: asyncio.Task[None]) -> None:
        """Waits until the task of `write` has written everything, while the client still reads."""
        await self.put(None)
        while not writer.done():
            begun = self._seq
            done, _ = await asyncio.wait([writer], timeout=self._send_timeout_s)
            if not done and self._seq == begun:
                self._too_slow()

    async def send(self, message: ServerMessage) -> None:
        """Writes one message immediately, ahead of the queue; for use when `write` does not run.

        `seq` counts the messages actually sent.
        """
        message.seq = self._seq
        self._seq += 1
        try:
            await self._websocket.send_text(message.model_dump_json(exclude_none=True))
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: uvicorn has closed it
            raise VanishedError from None

    def _too_slow(self) -> NoReturn:
        raise ProtocolError(
            ErrorCode.SLOW_READER,
            f"the client has read nothing for {self._send_timeout_s:g} s",
        )
