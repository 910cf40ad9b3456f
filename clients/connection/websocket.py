"""Opening the websocket to the service, and its errors."""

import json
import os
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from clients.errors import ConnectError

WEBSOCKET_PATH = "/ws/transcribe"
# ``done`` carries the MIDI file of the whole session: a note takes about 12 bytes of base64.
MAX_SERVER_MESSAGE_BYTES = 64 * 1024 * 1024
# Closing waits for the server's half of the closing handshake this long, then drops the socket.
CLOSE_TIMEOUT_S = 2.0
# The service is full or goes down; a proxy finds none that is up (502, 504).
RETRYABLE = (429, 502, 503, 504)

# Unlike arguments, the environment is hidden from other users' lists of processes.
KEY_VARIABLE = "RSE_KEY"
KEY_HELP = f"If the service requires an API key, set ${KEY_VARIABLE}."


def websocket_url(url: str) -> str:
    """The address of the live endpoint from any address of the service.

    ``http://host:8000``, ``ws://host:8000/`` and ``host:8000`` all mean
    ``ws://host:8000/ws/transcribe``; ``https://host/music/`` is a service under a path.

    Raises:
        ValueError: no host, or a scheme other than ws, wss, http, https.
    """
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"not a service address: {url!r}")
    path = parts.path.rstrip("/").removesuffix(WEBSOCKET_PATH) + WEBSOCKET_PATH
    return urlunsplit((schemes[parts.scheme], parts.netloc, path, parts.query, ""))


async def open_socket(
    url: str, start: str, open_timeout_s: float, key: str | None = None
) -> ClientConnection:
    """Connect and send the message ``start``; what the server answers is not awaited.

    Args:
        key: API key (default: ``$RSE_KEY``).

    Raises:
        ConnectError: no service there, or it accepts no session now (``retryable``).
    """
    try:
        socket = await connect(
            url,
            additional_headers=credentials(key),
            compression=None,  # PCM does not compress
            max_size=MAX_SERVER_MESSAGE_BYTES,
            open_timeout=open_timeout_s,
            close_timeout=CLOSE_TIMEOUT_S,
        )
        await socket.send(start)
        return socket
    except InvalidStatus as error:
        raise _refused(error) from None
    except (OSError, TimeoutError, WebSocketException) as error:
        reason = str(error) or type(error).__name__
        raise ConnectError(f"cannot connect to {url}: {reason}", retryable=True) from error


def credentials(key: str | None) -> dict[str, str]:
    """The header with an API key; by default that of the environment."""
    key = key or os.environ.get(KEY_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


def _refused(error: InvalidStatus) -> ConnectError:
    """The error for a refused handshake, from its problem document (RFC 9457)."""
    status = error.response.status_code
    try:
        detail = str(json.loads(error.response.body or b"")["detail"])
    except (ValueError, LookupError, TypeError):  # not the service's answer
        detail = f"HTTP {status}"
    return ConnectError(f"the service refused: {detail}", retryable=status in RETRYABLE)
