"""One live session with the service, for programs.

    options = StartOptions(encoding="pcm_s16le", sample_rate=48_000)
    async with TranscriptionClient("http://127.0.0.1:8000", options) as client:
        sender = asyncio.create_task(send_audio(client))    # await client.send(pcm) ...
        async for event in client:                          # NoteOn, NoteOff, Progress ...
            print(event)

``await client.stop()`` ends the audio and returns the totals and the MIDI file. However a session
ends, the caller sees a ``NoteOff`` for every ``NoteOn`` it saw; only then is an error raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from clients.connection import open_socket
from clients.errors import (
    ConnectError,
    ConnectionLostError,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.flow import FlowControl
from clients.protocol import (
    KEEPALIVE,
    STOP,
    Done,
    ErrorMessage,
    Event,
    Flushed,
    Message,
    Progress,
    ProtocolError,
    Ready,
    StartOptions,
    UnknownMessage,
    flush_message,
    parse_message,
    websocket_url,
)
from clients.sounding import Sounding

__all__ = [
    "ConnectError",
    "ConnectionLostError",
    "ServerError",
    "SessionEndedError",
    "TranscriptionClient",
    "TranscriptionError",
]

logger = logging.getLogger(__name__)


class TranscriptionClient:
    """A live session over a websocket, as an async context manager.

    Args:
        url: any address of the service (``clients.protocol.websocket_url``).
        options: format of the audio that will be sent, and the wanted transcription.
        key: API key, where the service asks for one; ``$RSE_KEY`` if not given.
        open_timeout_s: for the connection and the server's ``ready``.
        stall_timeout_s: silence of the server, while it owes an answer, that ends the session.
        max_unacknowledged_s: audio that may be under way; ``send`` waits while there is more. The
            server's own limit, if smaller, takes its place.
        max_pending_events: events that may wait for the caller to iterate; more end the session.

    The instance belongs to one event loop. ``send`` and ``stop`` are called from one task at a
    time; iterating may go on in another.
    """

    def __init__(
        self,
        url: str,
        options: StartOptions,
        *,
        key: str | None = None,
        open_timeout_s: float = 10.0,
        stall_timeout_s: float = 60.0,
        max_unacknowledged_s: float = 2.0,
        max_pending_events: int = 65_536,
    ) -> None:
        self.url = websocket_url(url)
        self.options = options
        self.ready: Ready | None = None
        self.done: Done | None = None
        self._key = key
        self._open_timeout_s = open_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._max_pending_events = max_pending_events
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._events: deque[Event] = deque()
        self._sounding = Sounding()
        self._error: ErrorMessage | None = None
        self._failure: TranscriptionError | None = None
        self._ended = False
        self._stopping = False
        self._closing = False
        self._next_seq = 0
        self._flow = FlowControl(options.frame_bytes, options.sample_rate, max_unacknowledged_s)

    # -- life ------------------------------------------------------------------------------------

    async def connect(self) -> Ready:
        """Open the session.

        Raises:
            ConnectError: no service there, or it takes no session now (``retryable``).
            ServerError: it does not accept the options.
        """
        self._socket = await open_socket(self.url, self.options, self._open_timeout_s, self._key)
        self._reader = asyncio.create_task(self._read(self._socket))
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._wait(lambda: self.ready is not None or self._ended)
        except TimeoutError:
            await self.close()
            raise ConnectError(f"no answer from {self.url}", retryable=True) from None
        if self.ready is None:
            await self.close()
            raise self._failure or ConnectError(f"{self.url} closed at once", retryable=True)
        self._flow.limit(self.ready.limits)
        return self.ready

    async def close(self) -> None:
        """Drop the session, whatever its state; open notes get their ``NoteOff``."""
        self._closing = True
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    async def __aenter__(self) -> TranscriptionClient:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # -- to the server ---------------------------------------------------------------------------

    @property
    def sent_samples(self) -> int:
        """Whole samples a channel that were sent."""
        return self._flow.sent_samples

    @property
    def acknowledged_samples(self) -> int:
        """Samples a channel that the server has said to have received."""
        return self._flow.acknowledged_samples

    @property
    def transcribed_s(self) -> float:
        """Seconds of the audio sent that events have told of."""
        return self._sounding.time_s

    async def send(self, pcm: bytes | memoryview) -> None:
        """Send audio of any length; returns when little enough of it is under way.

        Raises:
            TranscriptionError: the session is over; the subclass says why.
        """
        data = memoryview(pcm).cast("B")
        limit = self._flow.max_message_bytes
        for start in range(0, len(data), limit):
            chunk = data[start : start + limit]
            await self._send(bytes(chunk))
            marker = self._flow.sent(len(chunk))
            if marker is not None:
                await self.flush(marker)
            if self._flow.full:
                await self._wait_unless_silent(lambda: self._ended or not self._flow.full)

    async def flush(self, flush_id: str) -> None:
        """Ask for the event ``Flushed`` once the audio sent so far is transcribed."""
        await self._send(flush_message(flush_id))

    async def keepalive(self) -> None:
        """Hold off the server's idle timeout while there is no audio to send."""
        await self._send(KEEPALIVE)

    async def stop(self) -> Done:
        """End the audio, wait for the last notes, return the totals and the MIDI file.

        A ``Done`` whose reason is not ``stop`` means that the server ended the session itself.

        Raises:
            ServerError: the audio ended in a fault; its ``done`` has the MIDI until there.
            ConnectionLostError: the server did not come to an end.
        """
        if not self._stopping and not self._ended:
            self._stopping = True
            try:
                await self._send(STOP)
            except TranscriptionError:
                logger.debug("the session had ended before it was stopped")
        await self._wait_unless_silent(lambda: self._ended)
        if self._failure is not None:
            raise self._failure
        if self.done is None:
            raise ConnectionLostError("the session was closed before it was done")
        return self.done

    async def _send(self, message: str | bytes) -> None:
        if self._socket is None:
            raise RuntimeError("connect() was not called")
        if self._ended:
            raise self._over()
        try:
            await self._socket.send(message)
        except ConnectionClosed:
            # The reader has the reason: the server's last messages come before the close.
            await self._wait(lambda: self._ended)
            raise self._over() from None

    def _over(self) -> TranscriptionError:
        """Why nothing more can be sent."""
        if self._failure is not None:
            return self._failure
        draining = self.done is not None and self.done.reason == "draining"
        reason = "the service is going down" if draining else "the session is over"
        return SessionEndedError(reason, retryable=draining, done=self.done)

    # -- from the server -------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        """Events as they come; after the last, the session's failure if it had one."""
        while True:
            await self._wait(lambda: bool(self._events) or self._ended)
            while self._events:
                yield self._events.popleft()
            if self._ended:
                break
        if self._failure is not None:
            raise self._failure

    async def _read(self, socket: ClientConnection) -> None:
        """Take in all messages until the connection ends: the one place where state changes."""
        failure: TranscriptionError | None = None
        try:
            async for text in socket:
                seq, message = parse_message(text)
                if seq != self._next_seq:
                    raise ProtocolError(f"message {self._next_seq} is missing, {seq} came")
                self._next_seq += 1
                self._take(message)
                await self._notify()
        except ConnectionClosed as closed:
            failure = ConnectionLostError(f"the connection was lost: {closed}", retryable=True)
        except (ProtocolError, TranscriptionError) as error:
            failure = TranscriptionError(str(error))
            await socket.close(CloseCode.POLICY_VIOLATION)
        finally:
            self._end(failure)
            await self._notify()

    def _take(self, message: Message) -> None:
        if len(self._events) >= self._max_pending_events:
            raise TranscriptionError(f"{len(self._events)} events were not read by the caller")
        match message:
            case Ready():
                self.ready = message
                return
            case Done():
                self.done = message
                return
            case ErrorMessage():
                self._error = message
                return
            case UnknownMessage():
                return
            case Flushed() if self._flow.returned(message):
                return
            case Progress():
                self._flow.acknowledge(message.received_samples)
        if self._sounding.follow(message):
            self._events.append(message)
        else:
            logger.warning("note_off without its note_on: %s", message)

    def _end(self, failure: TranscriptionError | None) -> None:
        """The session is over: close what sounds, decide what the caller is told."""
        self._events.extend(self._sounding.silence())
        if self._failure is not None:
            pass  # decided before the socket was closed
        elif self._error is not None:
            self._failure = ServerError(self._error, self.done)
        elif self.done is None and not self._closing:
            self._failure = failure or ConnectionLostError(
                "the connection was closed before the session was done", retryable=True
            )
        self._ended = True

    # -- waiting ---------------------------------------------------------------------------------

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, holds: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(holds)

    async def _wait_unless_silent(self, holds: Callable[[], bool]) -> None:
        """Wait as long as messages come; a server that says nothing at all has failed."""
        while True:
            seen = self._next_seq
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await self._wait(holds)
                return
            except TimeoutError:
                if self._next_seq == seen:
                    self._failure = ConnectionLostError(
                        f"the server said nothing for {self._stall_timeout_s:g} s", retryable=True
                    )
                    await self.close()
                    raise self._failure from None
