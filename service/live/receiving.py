"""Receives the websocket messages of a client."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

from service.protocol.errors import ErrorCode, ProtocolError

MAX_MESSAGE_BYTES = 1024 * 1024  # 5 s of mono 48 kHz float32
# Size of a session's waiting messages above which no more are read. Reading ahead lets the server
# answer a ping that follows the waiting messages.
MAX_READ_AHEAD_BYTES = 1024 * 1024
OVERHEAD_BYTES = 256  # added to the size of each waiting message
Message = MutableMapping[str, Any]


class ClientDisconnectedError(Exception):
    """The client has closed the socket, or the connection is broken."""


class ReadAhead:
    """Receives messages in a task until the client disconnects. The task pauses while more than
    MAX_READ_AHEAD_BYTES wait for ``next``."""

    def __init__(self, receive: Callable[[], Awaitable[Message]]) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._receive_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def next(self) -> Message:
        """Wait for the next message and return it. After the last message, raises the error of
        ``receive``, or else ClientDisconnectedError."""
        while not self._messages:
            if self._task.done():
                self._task.result()
                raise ClientDisconnectedError
            await self._wait()
        message = self._messages.popleft()
        self._bytes -= _size(message)
        self._changed.set()
        return message

    async def _receive_all(self) -> None:
        try:
            message: Message = {"type": ""}
            while message["type"] != "websocket.disconnect":
                message = await self._receive()
                self._messages.append(message)
                self._bytes += _size(message)
                self._changed.set()
                while self._bytes > MAX_READ_AHEAD_BYTES:
                    await self._wait()
        finally:
            self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _size(message: Message) -> int:
    """Return the size of a message: bytes of audio or characters of text, plus OVERHEAD_BYTES."""
    return OVERHEAD_BYTES + len(message.get("bytes") or message.get("text") or "")


def message_payload(message: Message) -> bytes | str:
    """Return the payload of a message. Raises ClientDisconnectedError if the message reports a
    disconnect, and ProtocolError if it is too big."""
    if message["type"] == "websocket.disconnect":
        raise ClientDisconnectedError
    payload: bytes | str | None = message.get("bytes")
    if payload is None:
        payload = str(message["text"])
    size = len(payload) if isinstance(payload, bytes) else len(payload.encode())
    if size > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"message too big: {size} bytes; at most {MAX_MESSAGE_BYTES} are accepted",
        )
    return payload
