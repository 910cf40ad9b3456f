"""One session with the service over one websocket, with flow control."""

import asyncio
import json
import os
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
# Unlike arguments, the environment is hidden from other users' lists of processes.
KEY_VARIABLE = "RSE_KEY"
OPEN_TIMEOUT_S = 10.0  # maximum time for the connection, and then for ``ready``
# Closing waits for the server's half of the closing handshake this long, then drops the socket.
CLOSE_TIMEOUT_S = 2.0
# ``done`` carries the MIDI file of the whole session: a note takes about 12 bytes of base64.
MAX_SERVER_MESSAGE_BYTES = 64 * 1024 * 1024
# The service is full or goes down; a proxy finds none that is up (502, 504).
RETRYABLE = (429, 502, 503, 504)
KEEPALIVE_S = 5.0
MAX_UNACKNOWLEDGED_S = 2.0
"""Audio that may be under way; the server's own limit, if smaller, takes its place."""


def websocket_url(url: str) -> str:
    """The address of the live endpoint from any address of the service.

    ``http://host:8000``, ``ws://host:8000/`` and ``host:8000`` all mean
    ``ws://host:8000/ws/transcribe``; ``https://host/music/`` is a service under a path. Raises
    ValueError without a host, or for a scheme other than ws, wss, http, https.
    """
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"not a service address: {url!r}")
    path = parts.path.rstrip("/").removesuffix(WEBSOCKET_PATH) + WEBSOCKET_PATH
    return urlunsplit((schemes[parts.scheme], parts.netloc, path, parts.query, ""))


async def open_socket(url: str, start: str) -> ClientConnection:
    """Connect, with the API key of the environment, and send the message ``start``. Raises
    ConnectError if there is no service, or it accepts no session now (``retryable``)."""
    key = os.environ.get(KEY_VARIABLE)
    try:
        socket = await connect(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else {},
            compression=None,  # PCM does not compress
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
        except (ValueError, LookupError, TypeError):  # not the service's answer
            detail = f"HTTP {status}"
        refused = f"the service refused: {detail}"
        raise ConnectError(refused, retryable=status in RETRYABLE) from None
    except (OSError, TimeoutError, WebSocketException) as error:
        reason = str(error) or type(error).__name__
        raise ConnectError(f"cannot connect to {url}: {reason}", retryable=True) from error


class Session:
    """A socket from ``start`` to its end: sends audio from where the performance goes on, and hands
    to it what the server says.

    At the pace of live audio the ``progress`` messages acknowledge in time. A sender that is faster
    places markers (``flush``), which come back as soon as the audio before them is transcribed.
    """

    def __init__(self, url: str, performance: ResumablePerformance, stall_timeout_s: float) -> None:
        """stall_timeout_s: as of ``clients.client.TranscriptionClient``."""
        self._url = url
        self._performance = performance
        self._audio = performance.audio
        self._stall_timeout_s = stall_timeout_s
        self._ready: Ready | None = None
        self._window = 0  # samples that may be under way
        self._stopping = False

    async def run(self) -> Done:
        """The whole session, to the end of the audio and the last notes. Raises TranscriptionError
        if it comes to another end: one that can be resumed, as soon as the server says so."""
        socket = await open_socket(self._url, to_json(self._performance.start()))
        receiving = asyncio.create_task(self._receive(socket))
        sending = asyncio.create_task(self._send(socket))
        try:
            await asyncio.wait([receiving, sending], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                sending.result()
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
        """Sends all audio, as long as the connection holds; why it does not, the receiver knows."""
        audio, changes = self._audio, self._audio.notifier
        await changes.until(lambda: self._ready is not None)
        assert self._ready is not None
        limits, rate = self._ready.limits, self._performance.options.sample_rate
        window_s = min(MAX_UNACKNOWLEDGED_S, limits.max_buffered_ms / 1000)
        self._window = max(1, round(window_s * rate))
        most = max(1, min(self._window // 8, limits.max_message_bytes // audio.pcm_frame_bytes))
        marked = audio.position = self._performance.next_sample
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_S):
                        pcm = await audio.read(most)
                except TimeoutError:
                    await socket.send(to_json(Keepalive()))
                    continue
                if pcm is None:
                    break
                await socket.send(pcm)
                sent = audio.position
                if self._in_flight > self._window // 2 and sent - marked > self._window // 4:
                    marked = sent
                    await socket.send(to_json(Flush(id=str(marked))))
                await changes.until(lambda: self._in_flight <= self._window)
            self._stopping = True
            await socket.send(to_json(Stop()))
        except ConnectionClosed:
            pass

    async def _receive(self, socket: ClientConnection) -> Done:
        """Processes all messages; raises why the session ended if it was not done."""
        error: Error | None = None
        expected = 0
        try:
            while True:
                message = parse_server_message(await self._next(socket))
                if message.seq != expected:
                    raise TranscriptionError(f"expected message {expected}, got {message.seq}")
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
                        self._performance.acknowledge(int(message.id))  # a marker's
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
            lost = f"the connection was lost: {closed}"
            raise ConnectionLostError(lost, retryable=True) from None
        except ValueError as invalid:
            raise TranscriptionError(f"the server sent an invalid message: {invalid}") from invalid

    async def _next(self, socket: ClientConnection) -> str | bytes:
        """The next message; a server that owes one and stays silent has failed."""
        while True:
            reply_expected = self._reply_expected
            timeout_s = OPEN_TIMEOUT_S if self._ready is None else self._stall_timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    return await socket.recv()
            except TimeoutError:
                if self._ready is None:
                    answer = f"no answer from {self._url}"
                    raise ConnectError(answer, retryable=True) from None
                if reply_expected and self._reply_expected:
                    silence = f"no message from the server for {timeout_s:g} s"
                    raise ConnectionLostError(silence, retryable=True) from None

    @property
    def _reply_expected(self) -> bool:
        """Whether the server has an answer to give: audio that fills the window, or ``stop``."""
        return self._stopping or self._in_flight > self._window
