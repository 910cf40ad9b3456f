"""A small server that speaks the live protocol, for tests of the clients without the service.

It "hears" one note a second: at k + 0.25 s pitch 60 + k begins, at k + 0.75 s it ends. To resume
it needs the last half second again.
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
STEP_S = 1 / FRAME_RATE_HZ  # of time between two of the server's steps
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
    pedal: bool | None = None  # how the pedal moves as a session begins
    extra_messages: list[str] = field(default_factory=list)  # sent raw after ready


@dataclass
class Heard:
    """One session as the server saw it."""

    start: dict[str, Any] = field(default_factory=dict)
    audio: bytearray = field(default_factory=bytearray)
    largest_message: int = 0
    largest_unacknowledged_samples: int = 0
    acknowledged_samples: int = 0
    flushes: int = 0
    stopped: bool = False

    @property
    def frame_bytes(self) -> int:
        width = 2 if self.start["encoding"] == "pcm_s16le" else 4
        return width * int(self.start.get("channels", 1))

    @property
    def first_sample(self) -> int:
        return int(self.start.get("resume", {"from_sample": 0})["from_sample"])

    @property
    def samples(self) -> int:
        """All samples of the performance up to now."""
        return self.first_sample + len(self.audio) // self.frame_bytes


class FakeService:
    """Answers sessions according to its ``behaviour``; ``sessions`` tells what it heard."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.sessions: list[Heard] = []
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
        heard = Heard()
        self.sessions.append(heard)
        with contextlib.suppress(ConnectionClosed):
            await _Session(socket, self.behaviour, heard).run()


@contextmanager
def nobody() -> Iterator[str]:
    """The address of a service that is not there, and that no other program takes meanwhile."""
    reservation, port = reserved_port()
    with reservation:
        yield f"http://127.0.0.1:{port}"


class _Session:
    def __init__(self, socket: ServerConnection, behaviour: Behaviour, heard: Heard) -> None:
        self.socket, self.behaviour, self.heard = socket, behaviour, heard
        self.seq = 0
        self.notes = 0
        self.sounding: list[int] = []
        self.transcribed_s = 0.0
        self.known_events = 0

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"seq": self.seq, "type": kind, **fields}))
        self.seq += 1

    async def run(self) -> None:
        self.heard.start = json.loads(await self.socket.recv())
        resume = self.heard.start.get("resume")
        behaviour = self.behaviour
        code = "bad_start" if resume is None else behaviour.reject_resume
        if behaviour.reject_start if resume is None else behaviour.reject_resume:
            await self.say("error", code=code, message="cannot start so", retryable=False)
            await self.socket.close(4400, code)
            return
        if resume is not None:
            self.transcribed_s = resume["frames"] * STEP_S
            self.known_events = resume.get("known_events", 0)
            self.notes = resume["notes"]
            self.sounding = [note["note_id"] for note in resume["sounding"]]
            self.heard.acknowledged_samples = resume["from_sample"]
        await self.say(
            "ready",
            session_id="fa",
            model="fake",
            sample_rate_hz=11025,
            hop_samples=128,
            frame_rate_hz=FRAME_RATE_HZ,
            mode=self.heard.start.get("mode", "block"),
            lookahead_ms=self.heard.start.get("lookahead_ms", 100.0),
            block_frames=self.heard.start.get("block_frames", 4),
            delay_ms=150.0,
            note_off_delay_ms=160.0,
            replay_ms=750.0,
            checkpoint=self._checkpoint(),
            limits={
                "max_message_bytes": self.behaviour.max_message_bytes,
                "max_session_s": 3600,
                "idle_timeout_s": 30,
                "max_buffered_ms": self.behaviour.max_buffered_ms,
            },
        )
        if (down := self.behaviour.pedal) is not None:
            await self.say("pedal", down=down, frame=self._frame(), time_s=self.transcribed_s)
        for raw in self.behaviour.extra_messages:
            await self.socket.send(raw)
        async for message in self.socket:
            if self.behaviour.silent_after_ready:
                continue
            if isinstance(message, bytes):
                if await self._audio(message):
                    return
            elif await self._control(json.loads(message)):
                return

    async def _audio(self, data: bytes) -> bool:
        heard, behaviour = self.heard, self.behaviour
        heard.audio += data
        heard.largest_message = max(heard.largest_message, len(data))
        under_way = heard.samples - heard.acknowledged_samples
        heard.largest_unacknowledged_samples = max(heard.largest_unacknowledged_samples, under_way)
        await self._transcribe_until(heard.samples / heard.start["sample_rate"])
        if heard.samples >= behaviour.fail_at_samples:
            retryable = behaviour.fail_retryable
            await self.say("error", code="bad_audio", message="NaN in audio", retryable=retryable)
            await self._finish("error", 4400)
        elif heard.samples >= behaviour.drain_at_samples:
            behaviour.drain_at_samples = math.inf
            await self.say("draining")
            await self._finish("draining", 1001)
        elif behaviour.drops and heard.samples >= behaviour.drop_at_samples:
            behaviour.drops -= 1
            self.socket.transport.abort()
        else:
            return False
        return True

    async def _control(self, message: dict[str, Any]) -> bool:
        heard = self.heard
        match message["type"]:
            case "flush":
                heard.flushes += 1
                heard.acknowledged_samples = heard.samples
                await self.say("flushed", id=message["id"], frame=self._frame())
            case "stop":
                heard.stopped = True
                await self._finish("stop", 1000)
                return True
        return False

    async def _transcribe_until(self, time_s: float) -> None:
        while self.transcribed_s + STEP_S <= time_s:
            self.transcribed_s += STEP_S
            await asyncio.sleep(STEP_S * self.behaviour.seconds_to_transcribe_a_second)
            part = self.transcribed_s % 1
            if part == 0.25:
                self.sounding.append(self.notes)
                self.notes += 1
                await self._say_note("note_on", **self._note(self.sounding[-1]))
            elif part == 0.75:
                await self._close_notes()
            elif part == 0.5:
                received = round(self.transcribed_s * self.heard.start["sample_rate"])
                self.heard.acknowledged_samples = max(self.heard.acknowledged_samples, received)
                await self.say(
                    "progress",
                    received_samples=received,
                    frames=self._frame(),
                    time_s=self.transcribed_s,
                    behind_ms=0.0,
                    checkpoint=self._checkpoint(),
                )

    async def _say_note(self, kind: str, **fields: Any) -> None:
        if self.known_events:
            self.known_events -= 1
        else:
            await self.say(kind, **fields)

    def _checkpoint(self) -> dict[str, Any]:
        rate = self.heard.start["sample_rate"]
        return {
            "session_id": "fa",
            "from_sample": max(0, round((self.transcribed_s - REPLAY_S) * rate)),
            "frames": round(self.transcribed_s / STEP_S),
            "notes": self.notes,
            "sounding": [self._note(number) for number in self.sounding],
        }

    def _note(self, number: int) -> dict[str, Any]:
        note = {"note_id": number, "pitch": 60 + number, "velocity": 80, "confidence": 0.9}
        return {**note, "frame": round((number + 0.25) * FRAME_RATE_HZ), "time_s": number + 0.25}

    def _frame(self) -> int:
        return int(self.transcribed_s * FRAME_RATE_HZ)

    async def _close_notes(self) -> None:
        now = {"frame": self._frame(), "time_s": self.transcribed_s}
        while self.sounding:
            number = self.sounding.pop()
            await self._say_note("note_off", note_id=number, pitch=60 + number, **now)

    async def _finish(self, reason: str, close_code: int) -> None:
        await self._close_notes()
        totals = {
            "notes": self.notes,
            "frames": self._frame(),
            "audio_s": self.heard.samples / self.heard.start["sample_rate"],
            "received_samples": self.heard.samples,
            "dropped_samples": 0,
        }
        midi = base64.b64encode(b"MThd").decode()
        await self.say("done", reason=reason, totals=totals, midi_base64=midi)
        await self.socket.close(close_code)
