"""One worker as the service sees it: its socket, its slots, whether it is alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from service.stream.computer import EngineError
from service.workers.messages import (
    SLOTS,
    Failed,
    Frames,
    Hello,
    Ping,
    Pong,
    Setup,
    audio_frame,
    message_frame,
    slot_values,
)
from service.workers.process import Started, WorkerProcess, WorkerThread

LONGEST_LOAD_S = 600.0
"""A model may be compiled for a GPU."""
LOOKS = 8
"""Looks without an answer after which a worker counts as hanging."""


class Link(asyncio.Protocol):
    """A worker's socket, process and memory. Used from the event loop.

    Attributes:
        hello: what it said when it had loaded the model; None before.
        load: windows per second that its live sessions ask for.
        slots: the shared memory, [SLOTS, values].
        free: slots without a segment.
    """

    def __init__(
        self, in_process: bool, heard: Callable[[Link, object], None], lost: Callable[[Link], None]
    ) -> None:
        """heard: called with every message; lost: once, when the worker has ended."""
        self.in_process = in_process
        self._started: Started = WorkerProcess() if in_process else WorkerThread()
        self._heard = heard
        self._lost = lost
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._unanswered = 0  # looks since a ping that was not answered
        self.hello: Hello | None = None
        self.load = 0.0
        self.slots = np.zeros((0, 0), np.float32)
        self.free: list[int] = []
        self.closed = False
        self.heard_s = time.monotonic()  # from it

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
        shape = SLOTS, sum(slot_values(hello.config))
        memory = self._started.memory(4 * shape[0] * shape[1])
        self.slots = np.frombuffer(memory, np.float32).reshape(shape)
        self._samples = slot_values(hello.config)[0]
        self.free = list(range(SLOTS))
        self.hello = hello
        return hello

    def probabilities(self, slot: int) -> NDArray[np.float32]:
        """The part of a slot that answers are written into."""
        return self.slots[slot, self._samples :]

    @property
    def up(self) -> bool:
        return self.hello is not None and not self.closed

    @property
    def hangs(self) -> bool:
        """Whether it has not answered for ``LOOKS`` looks."""
        return self._unanswered >= LOOKS

    def send(self, message: object) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(message_frame(message))

    def send_audio(self, stream: int, data: bytes) -> None:
        if self._transport is not None and not self.closed:
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
                    case Pong():
                        self._unanswered = 0
                    case Hello():
                        self._greeting.set_result(reply)
                    case Failed():
                        self._greeting.set_exception(EngineError(reply.error))
                    case _:
                        self._heard(self, reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self._greeting.done():
            self._greeting.set_exception(EngineError("a worker did not start"))
        self._lost(self)
