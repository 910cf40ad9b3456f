"""One worker as the service sees it: a process, or a thread of this one, at the end of a socket.

Threads of one interpreter take turns at its lock: a window is some hundred small operations, each
of which gives the lock back and takes it again. So if a CPU has several cores, or a GPU computes
beside an event loop, workers are processes. A worker never outlives the service: it ends when its
socket is closed.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import cast

from service.stream.windows import EngineError
from service.workers.messages import (
    Failed,
    Frames,
    Hello,
    Measured,
    Ping,
    Pong,
    Setup,
    Trial,
    audio_frame,
    message_frame,
    slots_in,
    slots_size,
)

PROCESSES = hasattr(os, "memfd_create")  # Linux
LONGEST_LOAD_S = 600.0
"""A model may be compiled for a GPU."""
LOOKS = 8
"""Looks without an answer after which a worker counts as hanging."""
_LONGEST_WAIT_S = 5.0  # for a thread
# Ctrl-C and a system's end are sent to all of a group: the service decides, from the first moment.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""


class WorkerProcess:
    """A worker in a process of its own.

    Attributes:
        socket: the service's end.
    """

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._memory = os.fdopen(os.memfd_create("rse-worker"), "wb", buffering=0)
        files = (other.fileno(), self._memory.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, *map(str, files)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=files,
        )
        other.close()

    def memory(self, size: int) -> mmap.mmap:
        """The slots, once it has loaded the model."""
        return mmap.mmap(self._memory.fileno(), size)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Wait for it to exit; blocks."""
        self._process.wait()
        self._memory.close()


class WorkerThread:
    """The same as a thread, for a single core or a system without memory files."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=[other], name="worker", daemon=True)
        self._thread.start()

    def _run(self, other: socket.socket) -> None:
        from service.workers.worker import run  # with torch, which takes seconds

        run(other, self._map)

    def _map(self, size: int) -> mmap.mmap:
        self._shared = mmap.mmap(-1, size)
        return self._shared

    def memory(self, size: int) -> mmap.mmap:
        return self._shared

    def kill(self) -> None:
        """It ends after its step."""

    def wait(self) -> None:
        self._thread.join(_LONGEST_WAIT_S)


class Link(asyncio.Protocol):
    """A worker's socket, process and memory. Used from the event loop.

    Attributes:
        hello: what it said when it had loaded the model; None before.
        samples, probabilities: its memory (see ``slots_in``).
    """

    def __init__(
        self, in_process: bool, heard: Callable[[Link, object], None], lost: Callable[[Link], None]
    ) -> None:
        """heard: called with what it says of its work; lost: once, when the worker has ended."""
        self.in_process = in_process
        self._started = WorkerProcess() if in_process else WorkerThread()
        self._heard = heard
        self._lost = lost
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._measured: asyncio.Future[float] | None = None
        self._unanswered = 0  # looks since a ping that was not answered
        self.hello: Hello | None = None
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
        memory = self._started.memory(slots_size(hello.config))
        self.samples, self.probabilities = slots_in(memory, hello.config)
        self.hello = hello
        return hello

    @property
    def up(self) -> bool:
        return self.hello is not None and not self.closed

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

    async def measure(self, seconds: float) -> float:
        """Windows per second of default streams that it computes; 0 if it ends meanwhile."""
        self._measured = asyncio.get_running_loop().create_future()
        self.send(Trial(seconds))
        return await self._measured

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
                    case Measured():
                        self._answer(reply.windows_per_s)
                    case _:
                        self._heard(self, reply)

    def _answer(self, windows_per_s: float) -> None:
        if self._measured is not None and not self._measured.done():
            self._measured.set_result(windows_per_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self._greeting.done():
            self._greeting.set_exception(EngineError("a worker did not start"))
        self._answer(0.0)
        self._lost(self)
