"""Receives the websocket messages of a client."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

from service.protocol.errors import ErrorCode, ProtocolError

MAX_MESSAGE_BYTES = 1024 * 1024  # 5 s of mono 48 kHz float32
# Size of a session's waiting messages above which no more are read. Reading ahead lets the server
# answer a ping that follows the waiting messages.
MAX_READ_AHEAD_BYTES = 1024 * 1024
OVERHEAD_BYTES = 256  # added to the size of each waiting message
Message = MutableMapping[str, Any]


class ClientDisconnectedError(Exception):
    """The client has closed the socket, or the connection is broken."""


class Receiver:
    """Receives messages, and measures how long the client is idle.

    While the session pauses, a task receives messages ahead, until more than MAX_READ_AHEAD_BYTES
    wait for ``next``. The time of a pause does not count as the client's idle time.
    """

    def __init__(self, receive: Callable[[], Awaitable[Message]]) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._message_s = self._audio_s = monotonic()  # times of the latest message and audio

    @property
    def idle_s(self) -> float:
        """Seconds since the latest message; 0 during a pause."""
        return 0.0 if self._is_paused else monotonic() - self._message_s

    @property
    def without_audio_s(self) -> float:
        """Seconds since the latest audio; 0 during a pause."""
        return 0.0 if self._is_paused else monotonic() - self._audio_s

    async def next(self) -> bytes | str:
        """Wait for the next message and return its payload. Raises ClientDisconnectedError after
        the last message, and ProtocolError if a message is too big."""
        if self._task is not None and not self._messages:
            await self._task
        if self._messages:
            message = self._messages.popleft()
            self._bytes -= _size(message)
        else:
            message = await self._receive()
        payload = _payload(message)
        self._message_s = monotonic()
        if isinstance(payload, bytes):
            self._audio_s = self._message_s
        return payload

    async def pause(self, waiting: Awaitable[None]) -> None:
        """Wait without returning messages."""
        started_s, self._is_paused = monotonic(), True
        if self._task is None:
            self._task = asyncio.create_task(self._receive_ahead())
        await waiting
        self._message_s, self._is_paused = monotonic(), False
        self._audio_s += self._message_s - started_s

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _receive_ahead(self) -> None:
        """Receive messages until the first message after the pause, because a message could be lost
        if the task were cancelled."""
        while self._is_paused and self._bytes <= MAX_READ_AHEAD_BYTES:
            message = await self._receive()
            self._messages.append(message)
            self._bytes += _size(message)
            if message["type"] == "websocket.disconnect":
                return  # no message follows, so `pause` must not start another task
        self._task = None


def _size(message: Message) -> int:
    """Return the size of a message: bytes of audio or characters of text, plus OVERHEAD_BYTES."""
    return OVERHEAD_BYTES + len(message.get("bytes") or message.get("text") or "")


def _payload(message: Message) -> bytes | str:
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
