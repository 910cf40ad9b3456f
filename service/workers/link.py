"""A worker as the service sees it: a process or a thread at the end of a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from service.stream.windows import EngineError
from service.workers.messages import (
    Computed,
    Failed,
    Frames,
    Hello,
    Ping,
    Pong,
    Refused,
    Said,
    Setup,
    Stepped,
    audio_frame,
    message_frame,
    slots_in,
    slots_size,
)
from service.workers.process import WorkerProcess, WorkerThread

if TYPE_CHECKING:
    from service.workers.relay import Relay

LONGEST_LOAD_S = 600.0
"""A model may be compiled for a GPU."""
LOOKS = 8
"""Looks without an answer after which a worker counts as hanging."""


class Link(asyncio.Protocol):
    """A worker's socket, process, memory and live sessions. Used from the event loop.

    Attributes:
        hello: what it said when it had loaded the model; None before.
        samples, probabilities: its memory (see ``slots_in``).
        sessions: those that it computes, by number.
        heard_s: the time of its last sign of life.
    """

    def __init__(
        self,
        in_process: bool,
        worked: Callable[[Link, Computed | Stepped], None],
        lost: Callable[[Link], None],
    ) -> None:
        """worked: called with what it computed; lost: once, when the worker has ended."""
        self.in_process = in_process
        self._started = WorkerProcess() if in_process else WorkerThread()
        self._worked = worked
        self._lost = lost
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._unanswered = 0  # looks since a ping that was not answered
        self.sessions: dict[int, Relay] = {}
        self.hello: Hello | None = None
        self.closed = False
        self.heard_s = time.monotonic()

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
        memory = self._started.memory(slots_size(hello.config))
        self.samples, self.probabilities = slots_in(memory, hello.config)
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
        """Whether it has not answered for ``LOOKS`` looks."""
        return self._unanswered >= LOOKS

    def send(self, message: object) -> None:
        self._write(message_frame(message))

    def send_audio(self, stream: int, data: bytes | bytearray) -> None:
        self._write(audio_frame(stream, data))

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(frame)

    def look(self) -> None:
        """Ask for a sign of life; to be called at regular intervals."""
        if self.up:
            if not self._unanswered:
                self.send(Ping())
            self._unanswered += 1

    def kill(self) -> None:
        """End the worker at once; ``lost`` follows."""
        self._started.kill()
        if self._transport is not None:
            self._transport.abort()

    def wait(self) -> None:
        """Wait for it to exit; blocks."""
        self._started.wait()

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard_s = time.monotonic()
        for _, replies in self._frames.take(data):
            for reply in replies:
                match reply:
                    case Said() | Refused():
                        if (session := self.sessions.get(reply.stream)) is not None:
                            session.heard(reply)
                    case Computed() | Stepped():
                        self._worked(self, reply)
                    case Pong():
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
