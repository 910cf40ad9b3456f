"""Payload of the websocket messages that a client sends."""

from collections.abc import MutableMapping
from typing import Any

from service.protocol.errors import ErrorCode, ProtocolError

MAX_MESSAGE_BYTES = 1024 * 1024  # 5 s of 48 kHz float32


class ClientDisconnectedError(Exception):
    """The client has disconnected."""


def message_payload(message: MutableMapping[str, Any]) -> bytes | str:
    """Return what a client sent. Raises ClientDisconnectedError if it left, and ProtocolError if
    the message is too big."""
    if message["type"] == "websocket.disconnect":
        raise ClientDisconnectedError
    payload: bytes | str | None = message.get("bytes")
    if payload is None:
        payload = str(message["text"])
    size = len(payload) if isinstance(payload, bytes) else len(payload.encode())
    if size > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"a message of {size} bytes; at most {MAX_MESSAGE_BYTES} are accepted",
        )
    return payload
