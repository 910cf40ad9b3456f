"""Limits the size, the rate and the idle time of request bodies."""

import asyncio

from starlette.requests import Request
from starlette.types import Message

from service.protocol.errors import ErrorCode, ProtocolError
from service.state import ServiceState

# Minimum mean rate: 16 kbit/s, the rate of strongly compressed audio. The first ``idle_timeout_s``
# seconds do not count.
MIN_BYTES_PER_S = 2000


class LimitedBody:
    """Request body with limits. ``receive`` is an ASGI callable. ``received`` counts the bytes."""

    def __init__(self, request: Request, state: ServiceState, max_bytes: int) -> None:
        """Raises ProtocolError if `Content-Length` exceeds ``max_bytes``."""
        self.received = 0
        self._request, self._state, self._max_bytes = request, state, max_bytes
        self._idle_timeout_s = state.settings.idle_timeout_s
        self._start_s = asyncio.get_running_loop().time()
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > max_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive the next ASGI message. Raises ProtocolError if the body is too large or too slow,
        the client disconnects, or the service drains."""
        timeout_s = self._idle_timeout_s
        try:
            message = await self._state.wait_for(self._request.receive(), timeout_s)
        except TimeoutError:
            raise ProtocolError(ErrorCode.IDLE_TIMEOUT, f"no data for {timeout_s:g} s") from None
        if message["type"] == "http.disconnect":
            raise ProtocolError(ErrorCode.BAD_UPLOAD, "the client disconnected")
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
