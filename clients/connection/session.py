"""One session with the service over one websocket; received messages go to a callback."""

import asyncio
from collections.abc import Callable
from functools import partial

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients.connection.flow import FlowControl
from clients.connection.websocket import open_socket
from clients.errors import (
    ConnectError,
    ConnectionLostError,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from service.protocol.client_messages import Flush, Keepalive, Resume, Start, Stop, to_json
from service.protocol.server_messages import (
    Done,
    Draining,
    Error,
    Flushed,
    Frames,
    Progress,
    Ready,
    ServerMessage,
    SessionEvent,
    Unknown,
    parse_server_message,
)


class Changes:
    """Like ``asyncio.Condition``, but notifying needs no ``await``."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks to check again."""
        self._changed.set()
        self._changed.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._changed.wait()


class Session:
    """A socket from ``start`` to its end; ``open`` and ``close`` it.

    A session that can be resumed ends as soon as the server says so: messages after ``draining``
    or a retryable error are ignored.

    Args:
        url: of the websocket.
        options: format of the audio, and transcription options.
        on_message: is given ``Ready``, notes, ``Progress`` and ``Lagging`` in their order. A
            TranscriptionError that it raises ends the session.
        resume: the resume point to continue from, with its ``known_events``.
        open_timeout_s: for the connection and the server's ``ready``.
        stall_timeout_s: silence of the server, while it owes an answer, that ends the session.
        key: API key, where the service asks for one (default: ``$RSE_KEY``).
    """

    def __init__(
        self,
        url: str,
        options: Start,
        on_message: Callable[[Ready | SessionEvent], None],
        resume: Resume | None = None,
        *,
        open_timeout_s: float,
        stall_timeout_s: float,
        key: str | None = None,
    ) -> None:
        self.ready: Ready | None = None
        self.done: Done | None = None
        self.failure: TranscriptionError | None = None
        self.ended = asyncio.Event()
        self._url = url
        self._key = key
        self._start = to_json(options.model_copy(update={"resume": resume}))
        self._on_message = on_message
        self._open_timeout_s = open_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._changes = Changes()
        self._error: Error | None = None
        self._next_seq = 0
        first_sample = resume.from_sample if resume else 0
        self._new_flow = partial(
            FlowControl, options.frame_bytes, options.sample_rate, first_sample
        )
        self._flow: FlowControl  # from ``ready`` on

    async def open(self) -> Ready:
        """Connect and wait for ``ready``.

        Raises:
            ConnectError: the service is unreachable or accepts no session now (``retryable``).
            ServerError: it rejects the options.
        """
        self._socket = await open_socket(self._url, self._start, self._open_timeout_s, self._key)
        self._reader = asyncio.create_task(self._read(self._socket))
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._changes.until(lambda: self.ready is not None or self.ended.is_set())
        except TimeoutError:
            raise ConnectError(f"no answer from {self._url}", retryable=True) from None
        if self.ready is None:
            raise self.failure or ConnectError(
                f"{self._url} closed the connection at once", retryable=True
            )
        return self.ready

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)

    # -- to the server ---------------------------------------------------------------------------

    async def send(self, pcm: bytes) -> None:
        """Send audio of any length; returns when little enough of it is in transit.

        Raises:
            TranscriptionError: the session is over; the subclass says why.
        """
        data = memoryview(pcm)
        limit = self._flow.max_message_bytes
        for start in range(0, len(data), limit):
            chunk = data[start : start + limit]
            await self._send(bytes(chunk))
            marker = self._flow.sent(len(chunk))
            if marker is not None:
                await self._send(to_json(Flush(id=str(marker))))
            if self._flow.full:
                await self._wait_unless_silent(lambda: self.ended.is_set() or not self._flow.full)

    async def keepalive(self) -> None:
        """Hold off the server's idle timeout while there is no audio to send."""
        await self._send(to_json(Keepalive()))

    async def stop(self) -> Done:
        """End the audio and wait for the last notes.

        Raises:
            ServerError: the session failed; ``done`` has the MIDI up to the failure.
            ConnectionLostError: the server did not complete the session.
        """
        await self._send(to_json(Stop()))
        await self._wait_unless_silent(self.ended.is_set)
        if self.done is None or self.failure is not None:
            raise self.over()
        return self.done

    def over(self) -> TranscriptionError:
        """The reason why nothing more can be sent."""
        return self.failure or SessionEndedError("the session is over", done=self.done)

    async def _send(self, message: str | bytes) -> None:
        assert self._socket is not None
        if self.ended.is_set():
            raise self.over()
        try:
            await self._socket.send(message)
        except ConnectionClosed:
            # The reader has the reason: the server's last messages come before the close.
            await self._changes.until(self.ended.is_set)
            raise self.over() from None

    # -- from the server -------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        """Process all messages until the connection ends: the only place where state changes."""
        failure: TranscriptionError | None = None
        try:
            async for text in socket:
                message = parse_server_message(text)
                if message.seq != self._next_seq:
                    raise TranscriptionError(
                        f"message {self._next_seq} is missing, {message.seq} came"
                    )
                self._next_seq += 1
                self._take(message)
                self._changes.notify()
                if self.done is not None:
                    break  # nothing comes after it
        except ConnectionClosed as closed:
            failure = ConnectionLostError(f"the connection was lost: {closed}", retryable=True)
        except TranscriptionError as error:
            failure = error
        except ValueError as error:
            failure = TranscriptionError(f"the server sent an invalid message: {error}")
        finally:
            self._end(failure)
            self._changes.notify()
            await socket.close()

    def _take(self, message: ServerMessage | Unknown) -> None:
        match message:
            case Done():
                self.done = message
            case Error():
                self._error = message
                if message.retryable:
                    raise ServerError(message)
            case Draining():
                raise SessionEndedError("the service is shutting down", retryable=True)
            case Flushed():
                self._flow.acknowledge(int(message.id))  # a marker's
            case Ready():
                self.ready = message
                self._flow = self._new_flow(message.limits)
                self._on_message(message)
            case Progress():
                self._flow.acknowledge(message.received_samples)
                self._on_message(message)
            case Unknown() | Frames():
                pass
            case _:
                self._on_message(message)

    def _end(self, failure: TranscriptionError | None) -> None:
        """Determine why the session is over."""
        if self._error is not None:
            self.failure = ServerError(self._error, self.done)
        elif self.done is None and self.failure is None:
            self.failure = failure or ConnectionLostError(
                "the connection was closed before the session was done", retryable=True
            )
        self.ended.set()

    # -- waiting ---------------------------------------------------------------------------------

    async def _wait_unless_silent(self, holds: Callable[[], bool]) -> None:
        """Wait as long as messages arrive; a silent server has failed."""
        while True:
            seen = self._next_seq
            try:
                async with asyncio.timeout(self._stall_timeout_s):
                    await self._changes.until(holds)
                return
            except TimeoutError:
                if self._next_seq == seen:
                    self.failure = ConnectionLostError(
                        f"no message from the server for {self._stall_timeout_s:g} s",
                        retryable=True,
                    )
                    raise self.failure from None
