"""One recording through ``POST /transcribe``: bytes out, notes in as they are found."""

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from clients.connection.websocket import RETRYABLE, credentials, websocket_url
from clients.errors import BusyError, ConnectError, ConnectionLostError, TranscriptionError

PATH = "/transcribe"
# The model serves live streams first: a recording may wait a long time for its first answer.
SILENCE_TIMEOUT_S = 600.0
BUSY = (429, 503)  # a full disk (507) seldom passes in seconds


def transcribe(
    url: str,
    body: Iterable[bytes],
    options: Mapping[str, Any],
    key: str | None = None,
    connected: Callable[[socket.socket], None] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Send a recording in pieces as they come; yield the service's messages (PROTOCOL.md).

    Args:
        url: any address of the service.
        options: parameters of the request; None leaves the choice to the server.
        key: API key (default: ``$RSE_KEY``).
        connected: is given the connection, which another thread may shut down.

    Raises:
        ConnectError: the service is unreachable; BusyError: it says when it may have room.
        ConnectionLostError: the answer broke off.
        TranscriptionError: the service refused the recording.
        ValueError: impossible address.
    """
    parts = urlsplit(websocket_url(url))
    secure = parts.scheme == "wss"
    try:
        connection = (HTTPSConnection if secure else HTTPConnection)(
            parts.netloc, timeout=SILENCE_TIMEOUT_S
        )
    except HTTPException:  # such as a port that is no number
        raise ValueError(f"not a service address: {url!r}") from None
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        _connect(connection)
        connected(connection.sock)
        answer = _ask(connection, f"{PATH}?{urlencode({**chosen, 'answer': 'ndjson'})}", body, key)
        if answer.status != 200:
            raise _refused(answer)
        for line in answer:
            yield json.loads(line)
    except (OSError, HTTPException, ValueError) as error:
        raise ConnectionLostError(f"the connection was lost: {error}", retryable=True) from error
    finally:
        connection.close()


def _connect(connection: HTTPConnection) -> None:
    try:
        connection.connect()
    except OSError as error:
        where = f"{connection.host}:{connection.port}"
        refused = isinstance(error, ConnectionRefusedError)
        hint = "; `rse-transcribe serve` starts a service" if refused else ""
        raise ConnectError(f"cannot connect to {where}: {error}{hint}", retryable=True) from error


def _ask(
    connection: HTTPConnection, target: str, body: Iterable[bytes], key: str | None
) -> HTTPResponse:
    boundary = uuid4().hex
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}", **credentials(key)}
    try:
        connection.request("POST", target, _form(body, boundary), headers)  # sent in chunks
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused before its end: the answer says why
    return connection.getresponse()


def _form(body: Iterable[bytes], boundary: str) -> Iterator[bytes]:
    field = 'Content-Disposition: form-data; name="file"; filename="recording"'
    yield f"--{boundary}\r\n{field}\r\n\r\n".encode()
    try:
        yield from body
    except OSError as error:
        raise TranscriptionError(f"the recording cannot be read: {error}") from error
    yield f"\r\n--{boundary}--\r\n".encode()


def _refused(answer: HTTPResponse) -> TranscriptionError:
    """The error for a refused upload, from its problem document (RFC 9457)."""
    try:
        problem = json.loads(answer.read())
        words = f"{problem['detail']} ({problem['code']})"
    except (ValueError, LookupError, TypeError):
        words = f"the service answered {answer.status} {answer.reason}"
    if answer.status in RETRYABLE:
        later = answer.getheader("Retry-After", "")
        if answer.status in BUSY and later.isdigit():
            return BusyError(words, float(later))
        return ConnectError(words, retryable=True)
    return TranscriptionError(words)
