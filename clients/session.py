"""Runs a session with the service over one websocket, with flow control."""

import asyncio
import json
from errno import ECONNREFUSED
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from clients.events import (
    ConnectError,
    ConnectionLostError,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.performance import ResumablePerformance
from service.protocol.client_messages import Flush, Keepalive, Stop, to_json
from service.protocol.command_line import START_HINT, api_key
from service.protocol.server_messages import (
    Done,
    Draining,
    Error,
    Flushed,
    Frames,
    Ready,
    Unknown,
    parse_server_message,
)

WEBSOCKET_PATH = "/ws/transcribe"
OPEN_TIMEOUT_S = 10.0  # maximum time for the connection, and then for ``ready``
DONE_TIMEOUT_S = 15.0  # minimum timeout for ``done``: the server may first write a long MIDI file
CLOSE_TIMEOUT_S = 2.0  # maximum time for the closing handshake
# Maximum size of a message. ``done`` contains a MIDI file of at most 200,000 notes. In base64, a
# note needs about 10 bytes or, with bends, up to about 450 bytes per second.
MAX_SERVER_MESSAGE_BYTES = 512 * 1024 * 1024
# HTTP statuses of a full or draining service, or of a proxy that cannot reach a server.
RETRYABLE = (429, 502, 503, 504)
KEEPALIVE_S = 5.0  # interval of keepalive messages while no audio arrives
MAX_UNACKNOWLEDGED_S = 2.0  # maximum audio in flight, unless the server's limit is smaller


def websocket_url(url: str) -> str:
    """Return the websocket address of the live endpoint of a service.

    ``http://host:8000``, ``ws://host:8000/`` and ``host:8000`` all become
    ``ws://host:8000/ws/transcribe``. The address may have a path. Its query is dropped, because the
    server would read it as the fields of ``start``. Raises ValueError if the host is missing, the
    port is invalid, or the scheme is not ws, wss, http or https.
    """
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    try:
        is_valid = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:  # the port is not a number up to 65535
        is_valid = False
    if not is_valid:
        raise ValueError(f"invalid service address: {url!r}")
    path = parts.path.rstrip("/").removesuffix(WEBSOCKET_PATH) + WEBSOCKET_PATH
    return urlunsplit((schemes[parts.scheme], parts.netloc, path, "", ""))


async def open_socket(url: str, start: str) -> ClientConnection:
    """Connect, with the API key in ``$RSE_KEY``, and send ``start``. Raises ConnectError."""
    try:
        key = api_key()
    except ValueError as error:
        raise ConnectError(str(error)) from None
    try:
        socket = await connect(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else {},
            compression=None,  # PCM does not compress
            proxy=None,  # proxies of the environment may not reach a service on this network
            max_size=MAX_SERVER_MESSAGE_BYTES,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
        )
        await socket.send(start)
        return socket
    except InvalidStatus as error:
        status = error.response.status_code
        try:  # a problem document (RFC 9457)
            detail = str(json.loads(error.response.body or b"")["detail"])
        except (ValueError, LookupError, TypeError):  # not a response of this service
            detail = f"HTTP {status}"
        message = f"the service rejected the connection: {detail}"
        raise ConnectError(message, retryable=status in RETRYABLE) from None
    except (OSError, TimeoutError, WebSocketException) as error:
        reason = str(error) or type(error).__name__
        # asyncio joins the errors of several addresses, as of localhost, in one message.
        is_refused = f"[Errno {ECONNREFUSED}]" in reason
        hint = START_HINT if is_refused else ""
        raise ConnectError(f"cannot connect to {url}: {reason}{hint}", retryable=True) from error


class Session:
    """One session of a performance: sends its audio and processes the server's messages.

    The session limits the audio that the server has not acknowledged. The server acknowledges live
    audio in its ``progress`` messages. If audio is sent faster, the session also sends ``flush``.
    The server replies ``flushed`` once it has transcribed the earlier audio.
    """

    def __init__(self, url: str, performance: ResumablePerformance, stall_timeout_s: float) -> None:
        self._url = url
        self._performance = performance
        self._audio = performance.audio
        self._stall_timeout_s = stall_timeout_s
        self._ready: Ready | None = None
        self._window = 0  # maximum number of samples in flight
        self._stopping = False

    async def run(self) -> Done:
        """Run the session and return its ``done``. Raises TranscriptionError if the session fails.
        If the server's error is retryable, the method does not wait for ``done``."""
        socket = await open_socket(self._url, to_json(self._performance.start()))
        receiving = asyncio.create_task(self._receive(socket))
        sending = asyncio.create_task(self._send(socket))
        try:
            await asyncio.wait([receiving, sending], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                sending.result()  # raises the error of `_send`, such as dropped audio
            return await receiving
        finally:
            receiving.cancel()
            sending.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)
            await socket.close()

    @property
    def _in_flight(self) -> int:
        return self._audio.position - self._performance.acknowledged

    async def _send(self, socket: ClientConnection) -> None:
        """Send all audio. Return if the connection breaks: ``_receive`` raises the error."""
        audio, notifier = self._audio, self._audio.notifier
        await notifier.until(lambda: self._ready is not None)
        assert self._ready is not None
        limits, rate = self._ready.limits, self._performance.options.sample_rate
        window_s = min(MAX_UNACKNOWLEDGED_S, limits.max_buffered_ms / 1000)
        self._window = max(1, round(window_s * rate))
        max_samples = limits.max_message_bytes // audio.pcm_frame_bytes
        max_samples = max(1, min(self._window // 8, max_samples))
        audio.position = flushed = self._performance.next_sample
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_S):
                        pcm = await audio.read(max_samples)
                except TimeoutError:
                    await socket.send(to_json(Keepalive()))
                    continue
                if pcm is None:
                    break
                await socket.send(pcm)
                sent = audio.position
                if self._in_flight > self._window // 2 and sent - flushed > self._window // 4:
                    flushed = sent
                    await socket.send(to_json(Flush(id=str(flushed))))
                await notifier.until(lambda: self._in_flight <= self._window)
            self._stopping = True
            await socket.send(to_json(Stop()))
        except ConnectionClosed:
            pass

    async def _receive(self, socket: ClientConnection) -> Done:
        """Process all messages until ``done``. Raises TranscriptionError."""
        error: Error | None = None
        expected = 0
        try:
            while True:
                message = parse_server_message(await self._next(socket))
                if message.seq != expected:
                    reason = f"expected sequence number {expected}, got {message.seq}"
                    raise TranscriptionError(reason)
                expected += 1
                match message:
                    case Done():
                        if error is not None:
                            raise ServerError(error, message)
                        return message
                    case Error():
                        error = message
                        if message.retryable:
                            raise ServerError(message)
                    case Draining():
                        raise SessionEndedError("the service is shutting down", retryable=True)
                    case Flushed():
                        # `_send` uses the number of samples as the ID.
                        self._performance.acknowledge(int(message.id))
                    case Unknown() | Frames():
                        pass
                    case _:
                        self._performance.handle(message)
                        if isinstance(message, Ready):
                            self._ready = message
                self._audio.notifier.notify()
        except ConnectionClosed as closed:
            if error is not None:
                raise ServerError(error) from None
            detail = f"the connection was lost: {closed}"
            raise ConnectionLostError(detail, retryable=True) from None
        except ValueError as invalid:
            raise TranscriptionError(f"the server sent an invalid message: {invalid}") from invalid

    async def _next(self, socket: ClientConnection) -> str | bytes:
        """Return the next message. Raises ConnectError if ``ready`` does not arrive in time, and
        ConnectionLostError if another expected message does not."""
        while True:
            expected_before = self._reply_expected
            timeout_s = OPEN_TIMEOUT_S if self._ready is None else self._stall_timeout_s
            if self._stopping:
                timeout_s = max(DONE_TIMEOUT_S, timeout_s)
            try:
                async with asyncio.timeout(timeout_s):
                    return await socket.recv()
            except TimeoutError:
                if self._ready is None:
                    detail = f"no response from {self._url}"
                    raise ConnectError(detail, retryable=True) from None
                if expected_before and self._reply_expected:
                    detail = f"no message from the server for {timeout_s:g} s"
                    raise ConnectionLostError(detail, retryable=True) from None

    @property
    def _reply_expected(self) -> bool:
        """True if the server must send ``done`` or, with a full window, acknowledge audio."""
        return self._stopping or self._in_flight > self._window
