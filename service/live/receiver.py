"""Reads a client's messages from its socket, within limits of time and size."""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

from starlette.websockets import WebSocket

from service.protocol.faults import ErrorCode, ProtocolError
from service.settings import Settings

_DRAIN_CHECK_S = 0.25  # how often a silent client's socket is left to see whether to shut down


class VanishedError(Exception):
    """The client has disconnected."""


class DrainingError(Exception):
    """The server is shutting down while the client may still be sending."""


class Receiver:
    """Reads one accepted socket; the session's time limit starts here."""

    def __init__(self, websocket: WebSocket, settings: Settings, draining: asyncio.Event) -> None:
        self._websocket = websocket
        self._settings = settings
        self._draining = draining
        self._deadline = asyncio.get_running_loop().time() + settings.max_session_s
        self._awaited: asyncio.Task[MutableMapping[str, Any]] | None = None

    def close(self) -> None:
        """Await no further message."""
        if self._awaited is not None:
            self._awaited.cancel()

    async def receive(self) -> bytes | str:
        """The next message.

        Raises:
            ProtocolError: it is too big, or did not arrive in time.
            VanishedError: the client has closed the socket.
            DrainingError: the server is shutting down.
        """
        loop = asyncio.get_running_loop()
        left_s = max(0.0, self._deadline - loop.time())
        message = await self._next_event(min(left_s, self._settings.idle_timeout_s))
        if message is None:
            if left_s < self._settings.idle_timeout_s:
                raise ProtocolError(
                    ErrorCode.SESSION_TOO_LONG,
                    f"a session lasts at most {self._settings.max_session_s:g} s",
                )
            raise ProtocolError(
                ErrorCode.IDLE_TIMEOUT,
                f"no message for {self._settings.idle_timeout_s:g} s",
            )
        if message["type"] == "websocket.disconnect":
            raise VanishedError
        content: bytes | str | None = message.get("bytes")
        if content is None:
            content = str(message["text"])
        size = len(content) if isinstance(content, bytes) else len(content.encode())
        if size > self._settings.max_message_bytes:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_BIG,
                f"a message of {size} bytes; at most {self._settings.max_message_bytes} are taken",
            )
        return content

    async def pause(self, seconds: float) -> None:
        """Reads nothing for this many seconds, or until the server shuts down."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._draining.wait()

    async def _next_event(self, timeout_s: float) -> MutableMapping[str, Any] | None:
        """The socket's next event; None if there is none in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        # A client that never pauses must not delay the shutdown, and a silent one not for long.
        while not self._draining.is_set():
            # One task outlives these waits: cancelled, it may lose a message that has just come.
            self._awaited = self._awaited or asyncio.create_task(self._websocket.receive())
            wait_s = min(until_s - loop.time(), _DRAIN_CHECK_S)
            done, _ = await asyncio.wait([self._awaited], timeout=max(0.0, wait_s))
            if done:
                event = self._awaited.result()
                self._awaited = None
                return event
            if loop.time() >= until_s:
                return None
        raise DrainingError
