"""The service's side of a live session: forwards audio to a worker, and buffers its messages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from model.config import ModelConfig
from service.protocol.errors import ProtocolError
from service.protocol.server_messages import DoneReason
from service.stream.session import OpenSession, SessionOutput
from service.stream.windows import PcmWindows
from service.workers.pool import WorkerClient
from service.workers.worker import Audio

MAX_BUFFERED_S = 2.0  # duration of untranscribed audio above which a session stops reading
_MAX_OUTPUTS = 256  # number of waiting outputs above which a session stops reading
_MAX_FLUSHES = 64  # maximum number of unacknowledged `flush` messages of a session


class SessionProxy:
    """The service's side of a live session. Used only from the event loop.

    If the worker exits, ``next_output`` raises a retryable error. The client then resumes from its
    latest checkpoint. ``windows_per_s`` is the load of the session in windows per second.
    """

    def __init__(self, opening: OpenSession, config: ModelConfig, worker: WorkerClient) -> None:
        self._windows = PcmWindows(opening.start, config)
        self.windows_per_s = self._windows.per_s
        self._max_bytes = int(MAX_BUFFERED_S * opening.start.audio().byte_rate)
        self._received = self._transcribed = 0  # bytes of audio
        self._waiting: list[bytes] = []  # audio to be sent when it completes a window
        self._next_window = self._windows.next_end(0)
        self._flushes = self._flushed = 0
        self._ended = False
        self._outputs: deque[SessionOutput] = deque()
        self._changed = asyncio.Event()  # set when the two waiting methods must check again
        self._error: Exception | None = None
        self._worker, self._number = worker, worker.open(self, opening)

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
            self._changed.clear()
            await self._changed.wait()

    def send(self, data: bytes) -> None:
        """Send audio when it completes a window, because each message has a fixed cost."""
        self._received += len(data)
        if data:  # endless empty messages must not fill the memory
            self._waiting.append(data)
        if self._received >= self._next_window:
            self._next_window = self._windows.next_end(self._received)
            self._send_waiting()

    def flush(self, flush_id: str) -> None:
        self._flushes += 1
        self._send_waiting(flush_id=flush_id)

    def end(self, reason: DoneReason, error: ProtocolError | None = None) -> None:
        """End the audio. Later calls have no effect."""
        if not self._ended:
            self._ended = True
            self._send_waiting(end=(reason, error))

    def _send_waiting(self, **following: Any) -> None:
        self._worker.send(Audio(self._number, b"".join(self._waiting), **following))
        self._waiting = []

    async def next_output(self) -> SessionOutput:
        """Wait for the worker's next messages to the client. Raises ProtocolError if the worker
        cannot open or continue the session, or the error that was passed to ``fail``."""
        while not self._outputs:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()
        return self._outputs.popleft()

    def fail(self, error: Exception) -> None:
        """Make ``next_output`` raise this error after the outputs that have already arrived."""
        self._error = self._error or error
        self._changed.set()

    def close(self) -> None:
        """Discard the session, also in the worker. Idempotent."""
        self._worker.close(self._number)

    def receive(self, output: SessionOutput) -> None:
        if output.error is not None:
            self.fail(output.error)
            return
        self._transcribed, self._flushed = output.transcribed_bytes, output.flushed
        if output.messages:
            self._outputs.append(output)
        self._changed.set()
