"""The service's side of a live session: between the client's socket and the session's worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

from model.config import HOP, ModelConfig
from service.audio.resample import RateRatio
from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import StreamOptions
from service.protocol.server_messages import DoneReason
from service.stream.session import OpenSession, SessionOutput
from service.stream.windows import WindowSchedule
from service.workers.client import WorkerClient
from service.workers.worker import Audio

MAX_BUFFERED_S = 2.0  # duration of untranscribed audio above which a session stops reading
_MAX_OUTPUTS = 256  # number of waiting outputs above which a session stops reading
_MAX_FLUSHES = 64  # maximum number of unacknowledged `flush` messages of a session
MAX_MESSAGE_BYTES = 1024 * 1024  # 5 s of mono 48 kHz float32
Message = MutableMapping[str, Any]


class ClientDisconnectedError(Exception):
    """The client has closed the socket, or the connection is broken."""


class Receiver:
    """Receives messages, and measures how long the client is idle. Pauses do not count."""

    def __init__(self, receive: Callable[[], Awaitable[Message]]) -> None:
        self._receive = receive
        self._is_paused = False
        self._message_s = self._audio_s = monotonic()  # times of the latest message and audio

    @property
    def idle_s(self) -> float:
        """Seconds since the latest message; 0 during a pause."""
        return 0.0 if self._is_paused else monotonic() - self._message_s

    @property
    def without_audio_s(self) -> float:
        """Seconds since the latest audio; 0 during a pause."""
        return 0.0 if self._is_paused else monotonic() - self._audio_s

    async def next(self) -> bytes | str:
        """Wait for the next message and return its payload. Raises ClientDisconnectedError after
        the last message, and ProtocolError if a message is too big."""
        payload = _payload(await self._receive())
        self._message_s = monotonic()
        if isinstance(payload, bytes):
            self._audio_s = self._message_s
        return payload

    async def pause(self, waiting: Awaitable[None]) -> None:
        """Wait without receiving messages."""
        started_s, self._is_paused = monotonic(), True
        await waiting
        self._message_s, self._is_paused = monotonic(), False
        self._audio_s += self._message_s - started_s


def _payload(message: Message) -> bytes | str:
    """Return the payload of a message. Raises ClientDisconnectedError if the message reports a
    disconnect, and ProtocolError if it is too big."""
    if message["type"] == "websocket.disconnect":
        raise ClientDisconnectedError
    payload: bytes | str | None = message.get("bytes")
    if payload is None:
        payload = str(message["text"])
    size = len(payload) if isinstance(payload, bytes) else len(payload.encode())
    if size > MAX_MESSAGE_BYTES:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_BIG,
            f"message too big: {size} bytes; at most {MAX_MESSAGE_BYTES} are accepted",
        )
    return payload


class SessionProxy:
    """The service's side of a live session. Used only from the event loop.

    If the worker exits, ``next_output`` raises a retryable error. The client then resumes from its
    latest checkpoint. ``windows_per_s`` is the load of the session in windows per second.
    """

    def __init__(self, opening: OpenSession, config: ModelConfig, worker: WorkerClient) -> None:
        start, audio = opening.start, opening.start.audio()
        self._schedule = WindowSchedule.of(start.options(StreamOptions()), config)
        self._ratio = RateRatio.of(audio.sample_rate_hz, config.sample_rate)
        self._frame_bytes = audio.pcm_frame_bytes
        self._first_sample = start.resume.from_sample if start.resume else 0
        self.windows_per_s = config.sample_rate / HOP / self._schedule.block_frames
        self._max_bytes = int(MAX_BUFFERED_S * audio.byte_rate)
        self._received = self._transcribed = 0  # bytes of audio
        self._waiting: list[bytes] = []  # audio to be sent when it completes a window
        self._next_window = self._end_of_next_window()
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
            self._next_window = self._end_of_next_window()
            self._send_waiting()

    def _end_of_next_window(self) -> int:
        """Return the number of received bytes that will complete another window."""
        samples = self._first_sample + self._received // self._frame_bytes
        block = self._schedule.complete(self._ratio.outputs(samples))
        needed = self._ratio.inputs(self._schedule.end_sample(block))
        return (needed - self._first_sample) * self._frame_bytes

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
        if output.messages or output.final_state is not None:
            self._outputs.append(output)
        self._changed.set()
