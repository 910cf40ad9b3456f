"""The service's side of a worker: its process, its connection, and proxies of its live sessions.

Python threads contend for the GIL. One window needs hundreds of small operations, each of which
releases and re-acquires the GIL. Workers are therefore processes on multi-core CPUs and on GPUs. A
worker never outlives the service, because it exits when its socket is closed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from multiprocessing.connection import Connection
from typing import Any

from model.config import HOP, ModelConfig
from service.audio.resample import RateRatio
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.server_messages import DoneReason
from service.stream.windows import EngineError, WindowSchedule
from service.workers import messages

PROCESSES = os.name == "posix"  # True if workers can be processes, which inherit a socket
MAX_BUFFERED_S = 2.0  # duration of untranscribed audio above which a session stops reading
MAX_LOAD_S = 600.0  # maximum time for loading the model, which may be compiled for a GPU
MIN_MISSED_PINGS = 8  # minimum number of missed heartbeats before a worker is unresponsive
_MAX_OUTPUTS = 256  # number of waiting outputs above which a session stops reading
_MAX_FLUSHES = 64  # maximum number of unacknowledged `Flush` messages of a session
_MAX_THREAD_EXIT_S = 5.0  # maximum time to wait until a worker thread has exited
# Terminals and service managers send SIGINT and SIGTERM to all processes of the service's group.
# Workers ignore these signals, so that only the service handles them.
_MAIN = """
from signal import SIG_IGN, SIGINT, SIGTERM, signal
signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN)
from service.workers.worker import main
main()
"""

WORKER_EXITED = "the session's worker stopped: resume from the latest checkpoint"


class SessionProxy:
    """The service's side of a live session. Used only from the event loop.

    If the worker exits, ``next_output`` raises a retryable error. The client then resumes from its
    latest checkpoint. ``windows_per_s`` is the load of the session in windows per second.
    """

    def __init__(
        self, opening: messages.OpenSession, config: ModelConfig, worker: WorkerConnection
    ) -> None:
        rate_hz = config.sample_rate
        self._schedule = WindowSchedule.of(opening.options, config)
        self._ratio = RateRatio.of(opening.audio.sample_rate_hz, rate_hz)
        self.windows_per_s = rate_hz / HOP / self._schedule.block_frames
        self._stream = opening.stream
        self._frame_bytes = opening.audio.pcm_frame_bytes
        self._first_sample = opening.resume.from_sample if opening.resume else 0
        self._worker = worker
        self._max_bytes = int(MAX_BUFFERED_S * opening.audio.byte_rate)
        self._received = self._transcribed = 0  # bytes of audio
        self._waiting: list[bytes] = []  # audio to be sent when it completes a window
        self._next_window = self._bytes_to_next_window()
        self._flushes = self._flushed = 0
        self._ended = False
        self._outputs: deque[messages.SessionOutput] = deque()
        self._output_available = asyncio.Event()
        self._writable = asyncio.Event()
        self._error: Exception | None = None
        worker.sessions[opening.stream] = self
        worker.send(opening)

    @property
    def is_full(self) -> bool:
        """True if the worker or the client is too far behind. Stop reading from the client then."""
        return (
            self._received - self._transcribed > self._max_bytes
            or self._flushes - self._flushed >= _MAX_FLUSHES
            or len(self._outputs) > _MAX_OUTPUTS
        )

    async def wait_until_writable(self) -> None:
        while self.is_full:
            self._writable.clear()
            await self._writable.wait()

    def send(self, data: bytes) -> None:
        """Send audio when it completes a window, because each message has a fixed cost."""
        self._received += len(data)
        if data:  # endless empty messages must not fill the memory
            self._waiting.append(data)
        if self._received >= self._next_window:
            self._next_window = self._bytes_to_next_window()
            self._send_waiting()

    def _bytes_to_next_window(self) -> int:
        """Return the value of ``_received`` from which the audio completes another window."""
        samples = self._first_sample + self._received // self._frame_bytes
        block = self._schedule.complete(self._ratio.outputs(samples))
        needed = self._ratio.inputs(self._schedule.end_sample(block))
        return (needed - self._first_sample) * self._frame_bytes

    def _send_waiting(self) -> None:
        if self._waiting:
            self._worker.send(messages.Audio(self._stream, b"".join(self._waiting)))
            self._waiting = []

    def flush(self, flush_id: str) -> None:
        self._flushes += 1
        self._send_waiting()
        self._worker.send(messages.Flush(self._stream, flush_id))

    def end(self, reason: DoneReason, error: ProtocolError | None = None) -> None:
        """End the audio. Later calls have no effect."""
        if not self._ended:
            self._ended = True
            cause = (error.code, error.message) if error else None
            self._send_waiting()
            self._worker.send(messages.EndAudio(self._stream, reason, cause))

    async def next_output(self) -> messages.SessionOutput:
        """Wait for the worker's next messages to the client. Raises ProtocolError if the worker
        cannot open or continue the session, or the error that was passed to ``fail``."""
        while not self._outputs:
            if self._error is not None:
                raise self._error
            self._output_available.clear()
            await self._output_available.wait()
        self._writable.set()
        return self._outputs.popleft()

    def fail(self, error: Exception) -> None:
        """Make ``next_output`` raise this error after the outputs that have already arrived."""
        self._error = self._error or error
        self._output_available.set()
        self._writable.set()

    def close(self) -> None:
        """Discard the session, also in the worker. Idempotent."""
        if self._worker.sessions.pop(self._stream, None) is not None:
            self._worker.send(messages.CloseSession(self._stream))

    def on_worker_reply(self, reply: messages.SessionOutput | messages.SessionFailed) -> None:
        if isinstance(reply, messages.SessionFailed):
            self.fail(ProtocolError(reply.code, reply.message))
            return
        self._transcribed, self._flushed = reply.transcribed_bytes, reply.flushed
        self._writable.set()
        if reply.messages:
            self._outputs.append(reply)
            self._output_available.set()


class WorkerProcess:
    """A worker in a separate process. ``socket`` is the service's end of the connection."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, str(other.fileno())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
        )
        other.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        """Block until the process has exited."""
        self._process.wait()


class WorkerThread:
    """A worker in a thread, for a single core or a system without ``PROCESSES``."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=[other], name="worker", daemon=True)
        self._thread.start()

    def _run(self, other: socket.socket) -> None:
        from service.workers.worker import run  # imports torch, which takes a second

        run(Connection(other.detach()))

    def kill(self) -> None:
        """Do nothing, because the thread exits by itself once its socket is closed."""

    def wait(self) -> None:
        self._thread.join(_MAX_THREAD_EXIT_S)


class State(Enum):
    """State of a worker's connection."""

    LOADING = auto()
    READY = auto()
    CLOSED = auto()


class WorkerConnection:
    """A worker's socket, process and live sessions. Used only from the event loop.

    Attributes:
        sessions: live sessions by their number (``OpenSession.stream``).
    """

    def __init__(
        self,
        own_process: bool,
        on_result: Callable[[WorkerConnection, messages.Result], None],
        on_exit: Callable[[WorkerConnection], None],
    ) -> None:
        """on_result: called with the result of a segment or the timing of a batch. on_exit: called
        once if the worker exits after it was ready."""
        self.own_process = own_process
        self.sessions: dict[int, SessionProxy] = {}
        self._process = WorkerProcess() if own_process else WorkerThread()
        self._on_result = on_result
        self._on_exit = on_exit
        self._state = State.LOADING
        self._missed_pings, self._max_missed_pings = 0, MIN_MISSED_PINGS
        self._receiving: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter

    async def start(self, config: messages.WorkerConfig) -> messages.ModelLoaded:
        """Send the configuration, and wait until the worker has loaded the model. Raises
        EngineError if that fails."""
        reader, self._writer = await asyncio.open_connection(sock=self._process.socket)
        self.send(config)
        try:
            async with asyncio.timeout(MAX_LOAD_S):
                reply = await _receive(reader)
        except TimeoutError:
            raise EngineError(f"worker did not load the model within {MAX_LOAD_S:.0f} s") from None
        except (asyncio.IncompleteReadError, OSError):
            raise EngineError("worker exited while it loaded the model") from None
        if isinstance(reply, messages.ModelLoadFailed):
            raise EngineError(reply.error)
        assert isinstance(reply, messages.ModelLoaded)
        if self._state is State.CLOSED:
            raise EngineError("worker was stopped while it loaded the model")
        self._state = State.READY
        self._receiving = asyncio.create_task(self._receive_all(reader))
        return reply

    @property
    def is_ready(self) -> bool:
        return self._state is State.READY

    @property
    def is_late(self) -> bool:
        """True if the worker has missed a heartbeat. Prefer other workers for new sessions."""
        return self._missed_pings > 1

    @property
    def is_unresponsive(self) -> bool:
        return self._missed_pings >= self._max_missed_pings

    @property
    def windows_per_s(self) -> float:
        """Number of windows per second that the worker's sessions require."""
        return sum(session.windows_per_s for session in self.sessions.values())

    def send(self, message: object) -> None:
        if self._state is not State.CLOSED:
            self._writer.write(messages.packet(message))

    def send_heartbeat(self, max_missed: int) -> None:
        """Ping the worker unless a reply is pending. Call this at regular intervals. The worker is
        unresponsive after ``max_missed`` calls without a reply."""
        self._max_missed_pings = max_missed
        if self.is_ready:
            if not self._missed_pings:
                self.send(messages.Ping())
            self._missed_pings += 1

    def kill(self) -> None:
        """Stop the worker immediately. If it was ready, ``on_exit`` is called afterwards."""
        self._process.kill()
        if self._state is not State.CLOSED and hasattr(self, "_writer"):
            self._writer.transport.abort()
        if self._state is State.LOADING:
            self._state = State.CLOSED

    async def wait_closed(self) -> None:
        if self._receiving is not None:
            await asyncio.wait([self._receiving])
        await asyncio.to_thread(self._process.wait)

    async def _receive_all(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                for reply in await _receive(reader):
                    self._handle(reply)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._state = State.CLOSED
            self._writer.close()
            sessions, self.sessions = self.sessions, {}
            for session in sessions.values():
                session.fail(ProtocolError(ErrorCode.INTERNAL, WORKER_EXITED))
            self._on_exit(self)

    def _handle(self, reply: object) -> None:
        match reply:
            case messages.SessionOutput() | messages.SessionFailed():
                if (session := self.sessions.get(reply.stream)) is not None:
                    session.on_worker_reply(reply)
            case messages.SegmentPart() | messages.BatchTiming():
                self._on_result(self, reply)
            case messages.Ping():
                self._missed_pings = 0


async def _receive(reader: asyncio.StreamReader) -> Any:
    (size,) = messages.LENGTH.unpack(await reader.readexactly(messages.LENGTH.size))
    return pickle.loads(await reader.readexactly(size))
