"""Request bodies with limits of size, rate and idle time."""

import asyncio
from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.types import Message

from service.protocol.errors import ErrorCode, ProtocolError
from service.state import ServiceState

MIN_BYTES_PER_S = 2000  # about the bit rate of the most compressed audio


class LimitedBody:
    """Request body with limits. ``receive`` is an ASGI callable.

    Attributes:
        received: number of bytes received.
    """

    def __init__(
        self, request: Request, state: ServiceState, max_bytes: int, stack: AsyncExitStack
    ) -> None:
        """Raises ProtocolError if `Content-Length` exceeds ``max_bytes``."""
        self.received = 0
        self._request, self._state, self._max_bytes = request, state, max_bytes
        self._idle_timeout_s = state.settings.idle_timeout_s
        self._start_s = asyncio.get_running_loop().time()
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > max_bytes:
            raise self._too_large()
        self._draining = asyncio.create_task(state.draining.wait())
        stack.callback(self._draining.cancel)

    async def receive(self) -> Message:
        """Receive the next ASGI message. Raises ProtocolError if the body is too large or too slow,
        and when the server drains."""
        receiving = asyncio.ensure_future(self._request.receive())
        try:
            awaited = [receiving, self._draining]
            timeout_s = self._idle_timeout_s
            await asyncio.wait(awaited, timeout=timeout_s, return_when="FIRST_COMPLETED")
            if self._state.draining.is_set():
                raise ProtocolError(ErrorCode.DRAINING, "the server is shutting down")
            if not receiving.done():
                detail = f"no data for {timeout_s:g} s"
                raise ProtocolError(ErrorCode.IDLE_TIMEOUT, detail)
        finally:
            receiving.cancel()
        message = receiving.result()
        self.received += len(message.get("body", b""))
        if self.received > self._max_bytes:
            raise self._too_large()
        elapsed_s = asyncio.get_running_loop().time() - self._start_s
        if self.received < MIN_BYTES_PER_S * (elapsed_s - self._idle_timeout_s):
            detail = f"the body arrives at less than {MIN_BYTES_PER_S / 1000:g} kB/s"
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, detail)
        return message

    def _too_large(self) -> ProtocolError:
        limit = f"{self._max_bytes / 1024**2:g} MiB"
        return ProtocolError(ErrorCode.UPLOAD_TOO_LARGE, f"the body is larger than {limit}")
