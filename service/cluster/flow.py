"""Limits what a client may send ahead of its session.

Ray Serve's proxy reads a websocket as fast as data arrives: a session that stops reading does not
slow down its client, as it would on a socket of its own.
"""

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

TOO_FAR_AHEAD = 1008  # policy violation (RFC 6455); the session can be resumed
LOST = 1006  # no close frame has come


class UnreadLimit:
    """ASGI middleware that closes a websocket with more than ``max_bytes`` unread."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        unread = _Unread(receive, send, self._max_bytes)
        taking = asyncio.create_task(unread.take())
        try:
            await self._app(scope, unread.receive, unread.send)
        finally:
            taking.cancel()
            await asyncio.wait([taking])


class _Unread:
    """The messages of one socket that its session has not read."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._bytes = 0
        self._messages: asyncio.Queue[Message] = asyncio.Queue()  # bounded by their bytes
        self._closed = False

    async def take(self) -> None:
        """Queues messages until the socket or its session ends."""
        while True:
            try:
                message = await self._receive()
            except Exception as error:  # the proxy died, and the socket with it
                logger.warning("lost a client's connection: %s", error)
                message = {"type": "websocket.disconnect", "code": LOST}
            self._bytes += _size(message)
            if self._bytes > self._max_bytes:
                break
            self._messages.put_nowait(message)
            if message["type"] == "websocket.disconnect":
                return
        logger.warning("closing: a client is more than %d bytes ahead", self._max_bytes)
        self._closed = True
        while not self._messages.empty():
            self._messages.get_nowait()
        self._messages.put_nowait({"type": "websocket.disconnect", "code": TOO_FAR_AHEAD})
        reason = f"more than {self._max_bytes} bytes wait to be read"
        await self._send({"type": "websocket.close", "code": TOO_FAR_AHEAD, "reason": reason})

    async def receive(self) -> Message:
        message = await self._messages.get()
        self._bytes -= _size(message)
        return message

    async def send(self, message: Message) -> None:
        if self._closed:
            raise OSError("the socket was closed")  # a disconnect to Starlette
        await self._send(message)


# Overhead of a message, so that many small ones count too.
_MESSAGE_BYTES = 128


def _size(message: Message) -> int:
    return _MESSAGE_BYTES + len(message.get("bytes") or b"") + len(message.get("text") or "")
