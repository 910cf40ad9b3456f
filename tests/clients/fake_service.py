"""Small server with the live protocol, for tests of the clients without the service.

It detects one note a second: pitch 60 + k from k + 0.25 s to k + 0.75 s. To resume, it needs the
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
    """How the server behaves; samples are counted a channel."""

    max_message_bytes: int = 65_536
    max_buffered_ms: float = 2_000.0
    seconds_to_transcribe_a_second: float = 0.0
    refuse_with: HTTPStatus | None = None
    reject_start: bool = False
    reject_resume: str = ""  # the code of the error
    fail_at_samples: float = math.inf  # error, notes off, done, close
    fail_retryable: bool = False
    drop_at_samples: float = math.inf  # the connection breaks
    drops: int = 1_000  # how many sessions are dropped so
    silent_after_ready: bool = False
    drain_at_samples: float = math.inf
    forget_ends: bool = False  # send no note_off
    pedal: bool | None = None  # how the pedal moves as a session begins
    extra_messages: list[str] = field(default_factory=list)  # sent raw after ready


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
            max_queue=None,  # a full queue would hide the client's half of the closing handshake
            # A machine that stalls for a while does not mean that the client is gone.
            ping_interval=None,
            close_timeout=60,
        ) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            yield self

    def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        if self.behaviour.refuse_with is None:
            return None
        body = json.dumps({"title": "Busy", "detail": "all sessions are taken"})
        return connection.respond(self.behaviour.refuse_with, body)

    async def _session(self, socket: ServerConnection) -> None:
        self.sessions.append(Session(socket, self.behaviour))
        with contextlib.suppress(ConnectionClosed):
            await self.sessions[-1].run()


@contextmanager
def nobody() -> Iterator[str]:
    """The address of a service that is not there, and that no other program takes meanwhile."""
    reservation, port = reserved_port()
    with reservation:
        yield f"http://127.0.0.1:{port}"


class Session:
    """One session as the server saw it."""

    def __init__(self, socket: ServerConnection, behaviour: Behaviour) -> None:
        self.start: dict[str, Any] = {}
        self.audio = bytearray()
        self.largest_message = self.largest_unacknowledged_samples = 0
        self.acknowledged_samples = self.flushes = 0
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
        """All samples of the performance up to now."""
        return self.first_sample + len(self.audio) // self.pcm_frame_bytes

    @property
    def _now(self) -> dict[str, Any]:
        return {"frame": int(self._time_s * FRAME_RATE_HZ), "time_s": self._time_s}

    async def _say(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"seq": self._seq, "type": kind, **fields}))
        self._seq += 1

    async def run(self) -> None:
        self.start = json.loads(await self._socket.recv())
        resume, behaviour = self.start.get("resume"), self._behaviour
        code = "bad_start" if resume is None else behaviour.reject_resume
        if behaviour.reject_start if resume is None else behaviour.reject_resume:
            await self._say("error", code=code, message="cannot start so", retryable=False)
            await self._socket.close(4400, code)
            return
        if resume is not None:
            self._time_s = resume["frames"] * STEP_S
            self._known_events = resume.get("known_events", 0)
            self._notes = resume["notes"]
            self._sounding = [note["note_id"] for note in resume["sounding"]]
            self.acknowledged_samples = resume["from_sample"]
        await self._say(
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
            await self._say("pedal", down=down, **self._now)
        for raw in behaviour.extra_messages:
            await self._socket.send(raw)
        async for message in self._socket:
            if behaviour.silent_after_ready:
                continue
            if isinstance(message, bytes):
                if await self._hear(message):
                    return
            elif await self._obey(json.loads(message)):
                return

    async def _hear(self, data: bytes) -> bool:
        """Whether the session ends with this audio."""
        behaviour = self._behaviour
        self.audio += data
        self.largest_message = max(self.largest_message, len(data))
        under_way = self.samples - self.acknowledged_samples
        self.largest_unacknowledged_samples = max(self.largest_unacknowledged_samples, under_way)
        await self._transcribe_until(self.samples / self.start["sample_rate"])
        if self.samples >= behaviour.fail_at_samples:
            retryable = behaviour.fail_retryable
            await self._say("error", code="bad_audio", message="NaN in audio", retryable=retryable)
            await self._finish("error", 4400)
        elif self.samples >= behaviour.drain_at_samples:
            behaviour.drain_at_samples = math.inf
            await self._say("draining")
            await self._finish("draining", 1001)
        elif behaviour.drops and self.samples >= behaviour.drop_at_samples:
            behaviour.drops -= 1
            self._socket.transport.abort()
        else:
            return False
        return True

    async def _obey(self, message: dict[str, Any]) -> bool:
        """Whether the session ends with this message."""
        if message["type"] == "flush":
            self.flushes += 1
            self.acknowledged_samples = self.samples
            await self._say("flushed", id=message["id"], frame=self._now["frame"])
        elif message["type"] == "stop":
            self.stopped = True
            await self._finish("stop", 1000)
        return self.stopped

    async def _transcribe_until(self, time_s: float) -> None:
        while self._time_s + STEP_S <= time_s:
            self._time_s += STEP_S
            await asyncio.sleep(STEP_S * self._behaviour.seconds_to_transcribe_a_second)
            part = self._time_s % 1
            if part == 0.25:
                self._sounding.append(self._notes)
                self._notes += 1
                await self._say_note("note_on", **_note(self._sounding[-1]))
            elif part == 0.75:
                await self._close_notes()
            elif part == 0.5:
                received = round(self._time_s * self.start["sample_rate"])
                self.acknowledged_samples = max(self.acknowledged_samples, received)
                await self._say(
                    "progress",
                    received_samples=received,
                    frames=self._now["frame"],
                    time_s=self._time_s,
                    behind_ms=0.0,
                    checkpoint=self._checkpoint(),
                )

    async def _say_note(self, kind: str, **fields: Any) -> None:
        if self._known_events:
            self._known_events -= 1
        else:
            await self._say(kind, **fields)

    def _checkpoint(self) -> dict[str, Any]:
        return {
            "session_id": "fa",
            "from_sample": max(0, round((self._time_s - REPLAY_S) * self.start["sample_rate"])),
            "frames": round(self._time_s / STEP_S),
            "notes": self._notes,
            "sounding": [_note(number) for number in self._sounding],
        }

    async def _close_notes(self) -> None:
        while self._sounding:
            number = self._sounding.pop()
            if not self._behaviour.forget_ends:
                await self._say_note("note_off", note_id=number, pitch=60 + number, **self._now)

    async def _finish(self, reason: str, close_code: int) -> None:
        await self._close_notes()
        totals = {
            "notes": self._notes,
            "frames": self._now["frame"],
            "audio_s": self.samples / self.start["sample_rate"],
            "received_samples": self.samples,
            "dropped_samples": 0,
        }
        midi = base64.b64encode(b"MThd").decode()
        await self._say("done", reason=reason, totals=totals, midi_base64=midi)
        await self._socket.close(close_code)


def _note(number: int) -> dict[str, Any]:
    note = {"note_id": number, "pitch": 60 + number, "velocity": 80, "confidence": 0.9}
    return {**note, "frame": round((number + 0.25) * FRAME_RATE_HZ), "time_s": number + 0.25}
