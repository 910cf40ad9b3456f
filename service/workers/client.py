"""The service's side of one worker: sends it sessions and segments, and handles its replies.

Threads would contend for the GIL, which each of the hundreds of operations of a window releases.
Workers are therefore processes on multi-core CPUs and on GPUs. A worker exits when its socket is
closed, so it never outlives the service.
"""

import asyncio
import itertools
import logging
import os
import pickle
import socket
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Protocol

from service.engine.load import WorkerConfig
from service.engine.segment_memory import SLOTS, SegmentMemory, create_file
from service.protocol.errors import ErrorCode, ProtocolError
from service.stream.session import OpenSession, SessionOutput
from service.stream.windows import EngineError, PendingWindows, Probabilities
from service.workers.worker import CloseSession, ModelLoaded, Ping, Segment, SegmentResult, run

logger = logging.getLogger(__name__)

MAX_LOAD_S = 180.0  # maximum time for loading the model, also allowed by docker/kubernetes.yaml
MIN_MISSED_PINGS = 8  # minimum number of missed heartbeats before a worker is unresponsive
MAX_PING_INTERVAL_S = 2.0
WORKER_EXITED = "the session's worker stopped: resume from the latest checkpoint"
_MAX_EXIT_POLLS = 500  # number of polls, 10 ms apart, for the exit of a killed worker
# Terminals and service managers also send SIGINT and SIGTERM to the workers, which ignore them.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""


class Session(Protocol):
    """The service's side of a live session (``service.live.session.SessionProxy``)."""

    windows_per_s: float

    def receive(self, output: SessionOutput) -> None: ...
    def fail(self, error: Exception) -> None: ...


class WorkerClient:
    """A worker's process or thread, with its connection. Used only from the event loop."""

    is_ready = False  # True from the end of ``start`` until the worker exits

    def __init__(self, own_process: bool) -> None:
        self.own_process = own_process
        self.sessions: dict[int, Session] = {}  # by number
        self.segments: dict[int, tuple[PendingWindows, asyncio.Future[Any]]] = {}  # by slot
        self._numbers = itertools.count(1)
        self._missed_pings, self._max_missed_pings = 0, MIN_MISSED_PINGS
        self._socket, other = socket.socketpair()
        self._file = create_file()
        memory = self._file.fileno()
        if own_process:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, str(other.fileno()), str(memory)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno(), memory],
            )
            other.close()
            self._kill, self._has_exited = process.kill, lambda: process.poll() is not None
        else:
            service = Connection(other.detach())
            thread = Thread(target=run, args=[service, os.dup(memory)], name="worker", daemon=True)
            thread.start()
            # A thread exits by itself once its socket is closed.
            self._kill, self._has_exited = lambda: None, lambda: not thread.is_alive()

    async def start(self, config: WorkerConfig) -> ModelLoaded:
        """Wait until the worker has loaded the model. Raises EngineError if that fails."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self.send(config)
        try:
            async with asyncio.timeout(MAX_LOAD_S):
                reply: ModelLoaded | EngineError = await self.receive()
        except (asyncio.IncompleteReadError, OSError) as error:  # OSError includes TimeoutError
            raise EngineError("worker exited, or did not load the model in time") from error
        if isinstance(reply, EngineError):
            raise reply
        self._memory = SegmentMemory(self._file.fileno(), reply.config)
        self.is_ready = True
        return reply

    async def stop(self) -> None:
        """Kill the worker, fail its sessions, return None for its segments, and await its exit."""
        self.kill()
        self._file.close()
        for session in self.sessions.values():
            session.fail(ProtocolError(ErrorCode.INTERNAL, WORKER_EXITED))
        for _, future in self.segments.values():
            future.set_result(None)
        # Poll, because an interpreter that is exiting cannot start a thread for the wait.
        for _ in range(_MAX_EXIT_POLLS):
            if self._has_exited():
                break
            await asyncio.sleep(0.01)

    def kill(self) -> None:
        self.is_ready = False
        self._kill()
        if hasattr(self, "_writer"):
            self._writer.transport.abort()
        else:
            self._socket.close()

    @property
    def is_unresponsive(self) -> bool:
        return self._missed_pings >= self._max_missed_pings

    @property
    def load(self) -> tuple[bool, float]:
        """True if the worker misses heartbeats, and the windows per second of its sessions."""
        return self._missed_pings > 1, sum(s.windows_per_s for s in self.sessions.values())

    def open(self, session: Session, opening: OpenSession) -> int:
        """Open a session and return its number."""
        number = next(self._numbers)
        self.sessions[number] = session
        self.send(replace(opening, number=number))
        return number

    def close(self, number: int) -> None:
        """Discard a session, also in the worker. Idempotent."""
        if self.sessions.pop(number, None) is not None:
            self.send(CloseSession(number))

    def compute(self, due: PendingWindows) -> asyncio.Future[Probabilities | None]:
        """Return a future of a segment. Its result is None if the worker exits."""
        slot = min(set(range(SLOTS)) - self.segments.keys())
        future = asyncio.get_running_loop().create_future()
        self.segments[slot] = due, future
        self.send(Segment(slot, due))
        return future

    def send(self, message: object) -> None:
        """Send a message, framed as by ``Connection``, unless the worker has exited."""
        if not self._writer.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def receive(self) -> Any:
        """Receive a message. Raises IncompleteReadError or OSError if the worker has exited."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return pickle.loads(await self._reader.readexactly(size))

    def handle(self, reply: object) -> None:
        match reply:
            case SessionOutput():
                if (session := self.sessions.get(reply.number)) is not None:
                    session.receive(reply)
            case SegmentResult(slot, error):
                due, future = self.segments[slot]
                if error is not None:
                    future.set_exception(error)
                else:  # copy, because the next segment may use the slot
                    future.set_result(self._memory.probabilities(slot, due).copy())
                del self.segments[slot]
            case Ping():
                self._missed_pings = 0

    async def send_heartbeats(self, hang_timeout_s: float) -> None:
        """Ping the worker regularly, unless a reply is pending. Kill an unresponsive process."""
        interval_s = min(hang_timeout_s / MIN_MISSED_PINGS, MAX_PING_INTERVAL_S)
        self._max_missed_pings = round(hang_timeout_s / interval_s)
        while True:
            await asyncio.sleep(interval_s)
            if self.is_ready and not self._missed_pings:
                self.send(Ping())
            self._missed_pings += self.is_ready
            if self.is_unresponsive and self.own_process:
                logger.error("a worker is unresponsive: killing it")
                self.kill()
