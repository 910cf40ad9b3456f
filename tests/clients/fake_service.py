"""Small server with the live protocol, for tests of the clients without the service.

It detects one note per second: pitch 60 + k from k + 0.25 s to k + 0.75 s. To resume, it needs the
last half second again.
"""

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.service.servers import reserved_port

FRAME_RATE_HZ = 4.0
STEP_S = 1 / FRAME_RATE_HZ  # interval between two steps of the server
REPLAY_S = 0.5


@dataclass
class Behaviour:
    """Faults and limits of the server. Sample counts are per channel."""

    max_message_bytes: int = 65_536
    max_buffered_ms: float = 2_000.0
    transcription_time_per_second: float = 0.0
    rejection_status: HTTPStatus | None = None
    reject_start: bool = False
    reject_resume: str = ""  # error code
    fail_at_samples: float = math.inf  # send error, note_off and done, then close
    fail_retryable: bool = False
    drop_at_samples: float = math.inf  # abort the connection
    drops: int = 1_000  # number of sessions to abort
    drop_interval: int = 0  # samples from one drop to the next
    unresponsive: bool = False  # after ready
    done_after_s: float = 0.0  # time without messages before done
    drain_at_samples: float = math.inf
    omit_note_offs: bool = False
    pedal: bool | None = None  # state to report at the start of a session
    extra_messages: list[str] = field(default_factory=list)  # raw text to send after ready


class FakeService:
    """Serve sessions according to ``behaviour``; ``sessions`` records what the clients sent."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.sessions: list[Session] = []
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        async with serve(
            self._session,
            "127.0.0.1",
            0,
            process_request=self._handshake,
            max_size=2**20,
            max_queue=None,  # A full queue would hide the client's half of the closing handshake.
            ping_interval=None,  # Keep the connection if the machine stalls for a while.
            close_timeout=60,
        ) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            yield self

    def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.behaviour.rejection_status is None:
            return None
        body = json.dumps({"title": "Busy", "detail": "all sessions are taken"})
        return connection.respond(self.behaviour.rejection_status, body)

    async def _session(self, socket: ServerConnection) -> None:
        self.sessions.append(Session(socket, self.behaviour))
        with contextlib.suppress(ConnectionClosed):
            await self.sessions[-1].run()


@contextmanager
def unused_address() -> Iterator[str]:
    """Reserve a port on which no service listens while the block runs, and return its address."""
    reservation, port = reserved_port()
    with reservation:
        yield f"http://127.0.0.1:{port}"


class Session:
    """Server side of one session."""

    def __init__(self, socket: ServerConnection, behaviour: Behaviour) -> None:
        self.start: dict[str, Any] = {}
        self.audio = bytearray()
        self.largest_message = self.largest_unacknowledged_samples = 0
        self.acknowledged_samples = self.flushes = self.keepalives = 0
        self.stopped = False
        self._socket, self._behaviour = socket, behaviour
        self._seq = self._known_events = self._notes = 0
        self._sounding: list[int] = []
        self._time_s = 0.0  # end of the transcribed audio

    @property
    def pcm_frame_bytes(self) -> int:
        width = 2 if self.start["encoding"] == "pcm_s16le" else 4
        return width * int(self.start.get("channels", 1))

    @property
    def first_sample(self) -> int:
        return int(self.start.get("resume", {"from_sample": 0})["from_sample"])

    @property
    def samples(self) -> int:
        """Number of samples received since the start of the performance, per channel."""
        return self.first_sample + len(self.audio) // self.pcm_frame_bytes

    @property
    def _position(self) -> dict[str, Any]:
        return {"frame": int(self._time_s * FRAME_RATE_HZ), "time_s": self._time_s}

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"seq": self._seq, "type": kind, **fields}))
        self._seq += 1

    async def run(self) -> None:
        self.start = json.loads(await self._socket.recv())
        resume, behaviour = self.start.get("resume"), self._behaviour
        code = "bad_start" if resume is None else behaviour.reject_resume
        if behaviour.reject_start if resume is None else behaviour.reject_resume:
            await self._send("error", code=code, message="cannot start so", retryable=False)
            await self._socket.close(4400, code)
            return
        if resume is not None:
            self._time_s = resume["frames"] * STEP_S
            self._known_events = resume.get("known_events", 0)
            self._notes = resume["notes"]
            self._sounding = [note["note_id"] for note in resume["sounding"]]
            self.acknowledged_samples = resume["from_sample"]
        await self._send(
            "ready",
            session_id="fa",
            model="fake",
            sample_rate_hz=11025,
            hop_samples=128,
            frame_rate_hz=FRAME_RATE_HZ,
            mode=self.start.get("mode", "block"),
            lookahead_ms=self.start.get("lookahead_ms", 100.0),
            block_frames=self.start.get("block_frames", 4),
            delay_ms=150.0,
            note_off_delay_ms=160.0,
            replay_ms=750.0,
            checkpoint=self._checkpoint(),
            limits={
                "max_message_bytes": behaviour.max_message_bytes,
                "max_session_s": 3600,
                "idle_timeout_s": 30,
                "max_buffered_ms": behaviour.max_buffered_ms,
            },
        )
        if (down := behaviour.pedal) is not None:
            await self._send("pedal", down=down, **self._position)
        for raw in behaviour.extra_messages:
            await self._socket.send(raw)
        async for message in self._socket:
            if behaviour.unresponsive:
                continue
            if isinstance(message, bytes):
                if await self._process_audio(message):
                    return
            elif await self._handle(json.loads(message)):
                return

    async def _process_audio(self, data: bytes) -> bool:
        """Transcribe the audio. Return True if the session has ended."""
        behaviour = self._behaviour
        self.audio += data
        self.largest_message = max(self.largest_message, len(data))
        in_flight = self.samples - self.acknowledged_samples
        self.largest_unacknowledged_samples = max(self.largest_unacknowledged_samples, in_flight)
        await self._transcribe_until(self.samples / self.start["sample_rate"])
        if self.samples >= behaviour.fail_at_samples:
            retryable = behaviour.fail_retryable
            await self._send("error", code="bad_audio", message="NaN in audio", retryable=retryable)
            await self._finish("error", 4400)
        elif self.samples >= behaviour.drain_at_samples:
            behaviour.drain_at_samples = math.inf
            await self._send("draining")
            await self._finish("draining", 1001)
        elif behaviour.drops and self.samples >= behaviour.drop_at_samples:
            behaviour.drops -= 1
            behaviour.drop_at_samples += behaviour.drop_interval
            self._socket.transport.abort()
        else:
            return False
        return True

    async def _handle(self, message: dict[str, Any]) -> bool:
        """Handle a control message. Return True if the session has ended."""
        if message["type"] == "flush":
            self.flushes += 1
            self.acknowledged_samples = self.samples
            await self._send("flushed", id=message["id"])
        elif message["type"] == "keepalive":
            self.keepalives += 1
        elif message["type"] == "stop":
            self.stopped = True
            await self._finish("stop", 1000)
        return self.stopped

    async def _transcribe_until(self, time_s: float) -> None:
        while self._time_s + STEP_S <= time_s:
            self._time_s += STEP_S
            await asyncio.sleep(STEP_S * self._behaviour.transcription_time_per_second)
            phase = self._time_s % 1
            if phase == 0.25:
                self._sounding.append(self._notes)
                self._notes += 1
                await self._send_note("note_on", **_note_fields(self._sounding[-1]))
            elif phase == 0.75:
                await self._close_notes()
            elif phase == 0.5:
                received = round(self._time_s * self.start["sample_rate"])
                self.acknowledged_samples = max(self.acknowledged_samples, received)
                await self._send(
                    "progress",
                    received_samples=received,
                    frames=self._position["frame"],
                    time_s=self._time_s,
                    behind_ms=0.0,
                    checkpoint=self._checkpoint(),
                )

    async def _send_note(self, kind: str, **fields: Any) -> None:
        if self._known_events:
            self._known_events -= 1
        else:
            await self._send(kind, **fields)

    def _checkpoint(self) -> dict[str, Any]:
        return {
            "session_id": "fa",
            "from_sample": max(0, round((self._time_s - REPLAY_S) * self.start["sample_rate"])),
            "frames": round(self._time_s / STEP_S),
            "notes": self._notes,
            "sounding": [_note_fields(number) for number in self._sounding],
        }

    async def _close_notes(self) -> None:
        while self._sounding:
            number = self._sounding.pop()
            if not self._behaviour.omit_note_offs:
                await self._send_note(
                    "note_off", note_id=number, pitch=60 + number, **self._position
                )

    async def _finish(self, reason: str, close_code: int) -> None:
        await self._close_notes()
        totals = {
            "notes": self._notes,
            "frames": self._position["frame"],
            "audio_s": self.samples / self.start["sample_rate"],
            "received_samples": self.samples,
            "dropped_samples": 0,
        }
        midi = base64.b64encode(b"MThd").decode()
        await asyncio.sleep(self._behaviour.done_after_s)
        await self._send("done", reason=reason, totals=totals, midi_base64=midi)
        await self._socket.close(close_code)


def _note_fields(number: int) -> dict[str, Any]:
    note = {"note_id": number, "pitch": 60 + number, "velocity": 80, "confidence": 0.9}
    return {**note, "frame": round((number + 0.25) * FRAME_RATE_HZ), "time_s": number + 0.25}
