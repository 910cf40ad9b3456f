"""The service's side of a worker: its live sessions, and the socket that leads to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from model.config import HOP, ModelConfig
from service.protocol.faults import ProtocolError, internal_error
from service.protocol.server_messages import DoneReason
from service.stream.windows import EngineError, complete_windows
from service.workers.messages import (
    Computed,
    Drop,
    End,
    Failed,
    Flush,
    Hello,
    Known,
    MessageReader,
    Open,
    Ping,
    Refused,
    Said,
    Setup,
    Stepped,
    audio_frame,
    message_frame,
    slots,
)
from service.workers.process import WorkerProcess, WorkerThread

MAX_BUFFERED_S = 2.0  # audio of a session that may await transcription
_MOST_SAID = 256  # groups of messages that a slow client has not read
_MOST_FLUSHES = 64  # of a session that await their answers
_MOST_MOVES = 3  # workers that may end under a session between two checkpoints
LONGEST_LOAD_S = 600.0  # a model may be compiled for a GPU
MOST_UNANSWERED = 8  # looks without an answer, after which a worker counts as hanging


class Relay:
    """Passes a session's audio to a worker and its words back. Used from the event loop.

    The audio that the last checkpoint needs is kept. If the worker ends, another one opens the
    session at that checkpoint and is given this audio: it says what the first would have said next.

    Attributes:
        load: windows per second that it asks for.
        link: the present worker; None while there is none.
    """

    def __init__(self, opening: Open, config: ModelConfig) -> None:
        """config: of the model, which decides when a window is complete."""
        self._opening = opening
        self.load = config.sample_rate / HOP / opening.options.frames_per_window
        self.link: Link | None = None
        self._complete = complete_windows(opening.options, opening.audio, config)
        self._frame_bytes = opening.audio.frame_bytes
        self._most = int(MAX_BUFFERED_S * opening.audio.byte_rate)
        self._known = opening.known
        self._first_sample = self._from_sample
        self._windows = -1  # complete in what has been passed on
        self._audio = bytearray()  # from the sample on that the checkpoint needs first
        # In bytes of the session's audio:
        self._audio_from = 0  # where ``_audio`` begins
        self._fed_from = 0  # where that of the present worker began
        self._passed = 0  # passed on to a worker
        self._fed = 0  # received
        self._taken = 0  # transcribed
        self._flushes: deque[tuple[int, Flush]] = deque()  # unanswered, by the audio before them
        self._flushed = 0  # answers by the present worker
        self._end: End | None = None
        self._moves = 0
        self._said: deque[Said] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._fault: Exception | None = None  # why nothing more will be said

    @property
    def stream(self) -> int:
        return self._opening.stream

    # -- for the socket ---------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether too much awaits transcription, or the client: it is not read meanwhile."""
        return (
            self._fed - self._taken > self._most
            or len(self._flushes) >= _MOST_FLUSHES
            or len(self._said) > _MOST_SAID
        )

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def send(self, data: bytes) -> None:
        """Take audio, and pass it on once it completes a window; the first at once, as it may be
        none."""
        self._fed += len(data)
        self._audio += data
        received = self._first_sample + self._fed // self._frame_bytes
        windows = self._complete(received)
        if windows > self._windows:
            self._windows = windows
            self._pass_on()

    def _pass_on(self, message: Flush | End | None = None) -> None:
        """Pass on what came since, and a message after it."""
        if self.link is not None:
            self.link.send_audio(self.stream, self._bytes(self._passed, self._fed))
            if message is not None:
                self.link.send(message)
        self._passed = self._fed

    def _bytes(self, begin: int, end: int) -> bytearray:
        return self._audio[begin - self._audio_from : end - self._audio_from]

    def flush(self, name: str) -> None:
        """Ask for `flushed` once all earlier audio has been transcribed."""
        flush = Flush(self.stream, name)
        self._pass_on(flush)
        self._flushes.append((self._passed, flush))

    def end(self, reason: DoneReason, error: ProtocolError | None = None) -> None:
        """No more audio comes."""
        if self._end is None:
            self._end = End(self.stream, reason, (error.code, error.message) if error else None)
            self._pass_on(self._end)

    async def said(self) -> Said:
        """The next messages for the client.

        Raises ProtocolError if the session could not be opened, or cannot go on, and what it was
        given up with.
        """
        while not self._said:
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            await self._news.wait()
        self._room.set()
        return self._said.popleft()

    def give_up(self, error: Exception) -> None:
        """Nothing more will be said: ``said`` raises this."""
        self._fault = error
        self._news.set()

    # -- for the pool -----------------------------------------------------------------------------

    def move_to(self, link: Link) -> None:
        """Open the session in this worker, and give it the audio that is kept."""
        self.link = link
        link.sessions[self.stream] = self
        self._flushed = 0
        at = self._fed_from = self._audio_from
        link.send(replace(self._opening, known=self._known))
        for until, flush in self._flushes:
            link.send_audio(self.stream, self._bytes(at, until))
            link.send(flush)
            at = until
        link.send_audio(self.stream, self._bytes(at, self._passed))
        if self._end is not None:
            link.send(self._end)

    def lost(self) -> bool:
        """Its worker has ended; returns whether the session may be moved to another."""
        self.link = None
        self._moves += 1
        if self._moves == _MOST_MOVES:
            self.give_up(internal_error())
        return self._moves < _MOST_MOVES

    def heard(self, message: Said | Refused) -> None:
        """What the present worker says."""
        if isinstance(message, Refused):
            self.give_up(ProtocolError(message.code, message.message))
            return
        self._taken = self._fed_from + message.taken_bytes
        self._room.set()
        known = self._known
        if message.score is not None:
            known.score.add(message.score)
        if message.beats is not None and known.beats is not None:
            message.beats.reported[:0] = known.beats.reported
        self._known = Known(
            messages=known.messages + len(message.texts),
            checkpoint=message.checkpoint or known.checkpoint,
            skip=message.skip if message.checkpoint else known.skip,
            score=known.score,
            heat_frame=message.heat_frame,
            beats=message.beats,
        )
        for _ in range(message.flushed - self._flushed):
            self._flushes.popleft()
        self._flushed = message.flushed
        if message.checkpoint is not None:
            self._moves = 0
            before = self._audio_from
            at = (self._from_sample - self._first_sample) * self._frame_bytes
            self._audio_from = max(before, at)
            del self._audio[: self._audio_from - before]
        if message.texts:
            self._said.append(message)
            self._news.set()

    def drop(self) -> None:
        """Nobody waits for it any more."""
        if self.link is not None and self.link.sessions.pop(self.stream, None) is not None:
            self.link.send(Drop(self.stream))

    @property
    def _from_sample(self) -> int:
        """That the last checkpoint needs first."""
        return self._known.checkpoint.from_sample if self._known.checkpoint else 0


class Link(asyncio.Protocol):
    """A worker's socket, process, memory and live sessions. Used from the event loop.

    Attributes:
        hello: what it said when it had loaded the model; None before.
        samples, probabilities: its memory (see ``slots``).
        sessions: those that it computes, by number.
    """

    def __init__(
        self,
        own_process: bool,
        worked: Callable[[Link, Computed | Stepped], None],
        lost: Callable[[Link], None],
    ) -> None:
        """worked: called with what it computed; lost: once, when the worker has ended."""
        self.own_process = own_process
        self._started = WorkerProcess() if own_process else WorkerThread()
        self._worked = worked
        self._lost = lost
        self._frames = MessageReader()
        self._transport: asyncio.Transport
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._unanswered = 0  # looks since a ping that was not answered
        self.sessions: dict[int, Relay] = {}
        self.hello: Hello | None = None
        self.closed = True  # before its socket is connected, and after

    async def start(self, setup: Setup) -> Hello:
        """Returns when the model is loaded. Raises EngineError if it cannot be."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=self._started.socket)
        self.send(setup)
        try:
            async with asyncio.timeout(LONGEST_LOAD_S):
                hello = await self._greeting
        except TimeoutError:
            raise EngineError(f"a worker has not started in {LONGEST_LOAD_S:.0f} s") from None
        if self.closed:
            raise EngineError("a worker ended as it had started")
        self.samples, self.probabilities = slots(hello.configs, self._started.memory)
        self.hello = hello
        return hello

    @property
    def up(self) -> bool:
        return self.hello is not None and not self.closed

    @property
    def load(self) -> float:
        """Windows per second that its sessions ask for."""
        return sum(session.load for session in self.sessions.values())

    @property
    def hangs(self) -> bool:
        """Whether it has not answered for ``MOST_UNANSWERED`` looks."""
        return self._unanswered >= MOST_UNANSWERED

    def send(self, message: object) -> None:
        if not self.closed:
            self._transport.write(message_frame(message))

    def send_audio(self, stream: int, data: bytes | bytearray) -> None:
        if data and not self.closed:
            self._transport.write(audio_frame(stream, data))

    def look(self) -> None:
        """Ask for a sign of life; to be called at regular intervals."""
        if self.up:
            if not self._unanswered:
                self.send(Ping())
            self._unanswered += 1

    def kill(self) -> None:
        """End the worker at once; ``lost`` follows."""
        self._started.kill()
        if not self.closed:
            self._transport.abort()

    def wait(self) -> None:
        """Wait for it to exit; blocks."""
        self._started.wait()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.closed = cast(asyncio.Transport, transport), False

    def data_received(self, data: bytes) -> None:
        for _, replies in self._frames.take(data):
            for reply in replies:
                match reply:
                    case Said() | Refused():
                        if (session := self.sessions.get(reply.stream)) is not None:
                            session.heard(reply)
                    case Computed() | Stepped():
                        self._worked(self, reply)
                    case Ping():
                        self._unanswered = 0
                    case Hello():
                        self._greeting.set_result(reply)
                    case Failed():
                        self._greeting.set_exception(EngineError(reply.error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self._greeting.done():
            self._greeting.set_exception(EngineError("a worker did not start"))
        self._lost(self)
