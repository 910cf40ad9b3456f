"""One session with the service over one websocket."""

import asyncio
import itertools
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients.connection.websocket import open_socket
from clients.errors import (
    ConnectError,
    ConnectionLostError,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.resumption.backlog import Backlog, Changes
from clients.resumption.performance import ResumablePerformance
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

KEEPALIVE_S = 5.0
MAX_UNACKNOWLEDGED_S = 2.0
"""Audio that may be under way; the server's own limit, if smaller, takes its place."""


@dataclass
class Session:
    """A socket from ``start`` to its end: sends audio from where the performance goes on, and hands
    to it what the server says.

    At the pace of live audio the ``progress`` messages acknowledge in time. A sender that is faster
    places markers (``flush``), which come back as soon as the audio before them is transcribed.

    Attributes:
        open_timeout_s, stall_timeout_s, key: see ``clients.client.TranscriptionClient``.
    """

    url: str
    performance: ResumablePerformance
    audio: Backlog
    changes: Changes
    open_timeout_s: float
    stall_timeout_s: float
    key: str | None
    _ready: Ready | None = None
    _window: int = 0  # samples that may be under way
    _stopping: bool = False

    async def run(self) -> Done:
        """The whole session, to the end of the audio and the last notes.

        A session that can be resumed ends as soon as the server says so: messages after
        ``draining`` or a retryable error are ignored.

        Raises:
            ConnectError: the service is unreachable or accepts no session now (``retryable``).
            ServerError: it rejects the options, or failed; ``done`` has the MIDI up to then.
            ConnectionLostError: the server did not complete the session.
            TranscriptionError: it broke the protocol.
        """
        start = to_json(self.performance.start())
        socket = await open_socket(self.url, start, self.open_timeout_s, self.key)
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

    # -- to the server ---------------------------------------------------------------------------

    @property
    def _under_way(self) -> int:
        return self.audio.position - self.performance.acknowledged

    async def _send(self, socket: ClientConnection) -> None:
        """Sends all audio, as long as the connection holds; why it does not, the receiver knows."""
        await self.changes.until(lambda: self._ready is not None)
        assert self._ready is not None
        limits, rate = self._ready.limits, self.performance.options.sample_rate
        window_s = min(MAX_UNACKNOWLEDGED_S, limits.max_buffered_ms / 1000)
        self._window = max(1, round(window_s * rate))
        most = max(1, min(self._window // 8, limits.max_message_bytes // self.audio.frame_bytes))
        marked = self.audio.position = self.performance.needed
        try:
            while True:
                try:
                    async with asyncio.timeout(KEEPALIVE_S):
                        pcm = await self.audio.read(most)
                except TimeoutError:
                    await socket.send(to_json(Keepalive()))
                    continue
                if pcm is None:
                    break
                await socket.send(pcm)
                sent = self.audio.position
                if self._under_way > self._window // 2 and sent - marked > self._window // 4:
                    marked = sent
                    await socket.send(to_json(Flush(id=str(marked))))
                await self.changes.until(lambda: self._under_way <= self._window)
            self._stopping = True
            await socket.send(to_json(Stop()))
        except ConnectionClosed:
            pass

    # -- from the server -------------------------------------------------------------------------

    async def _receive(self, socket: ClientConnection) -> Done:
        """Processes all messages; raises why the session ended if it was not done."""
        error: Error | None = None
        try:
            for number in itertools.count():
                message = parse_server_message(await self._next(socket))
                if message.seq != number:
                    raise TranscriptionError(f"expected message {number}, got {message.seq}")
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
                        self.performance.acknowledge(int(message.id))  # a marker's
                    case Unknown() | Frames():
                        pass
                    case _:
                        self.performance.hear(message)
                        if isinstance(message, Ready):
                            self._ready = message
                self.changes.notify()
        except ConnectionClosed as closed:
            if error is not None:
                raise ServerError(error) from None
            lost = f"the connection was lost: {closed}"
            raise ConnectionLostError(lost, retryable=True) from None
        except ValueError as invalid:
            raise TranscriptionError(f"the server sent an invalid message: {invalid}") from invalid
        raise AssertionError("the count does not end")

    async def _next(self, socket: ClientConnection) -> str | bytes:
        """The next message; a server that owes one and stays silent has failed."""
        while True:
            owed = self._owed
            try:
                async with asyncio.timeout(
                    self.open_timeout_s if self._ready is None else self.stall_timeout_s
                ):
                    return await socket.recv()
            except TimeoutError:
                if self._ready is None:
                    answer = f"no answer from {self.url}"
                    raise ConnectError(answer, retryable=True) from None
                if owed and self._owed:
                    silence = f"no message from the server for {self.stall_timeout_s:g} s"
                    raise ConnectionLostError(silence, retryable=True) from None

    @property
    def _owed(self) -> bool:
        """Whether the server has an answer to give: audio that fills the window, or ``stop``."""
        return self._stopping or self._under_way > self._window
