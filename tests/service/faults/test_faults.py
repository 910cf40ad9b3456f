"""Clients that vanish: a server in a process of its own outlives them and gives all back."""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import pytest

from tests.service.servers import TONES, RunningServer, StartServer, wait_until
from tests.service.talk import AUDIO, ServerSession, check_transcription, connect_to

VISITORS = 50
# asyncio keeps the threads that it has begun for blocking calls, up to so many.
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)


HANDSHAKE = (
    "GET /ws/transcribe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
UPLOAD = (
    "POST /transcribe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 4000000\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
)


@dataclass(frozen=True)
class Held:
    """Things that a server must give back."""

    sessions: int
    uploads: int
    tasks: int  # in the event loop, counted by `tests.service.serve_fake`
    files: int  # open descriptors: sockets, pipes, spooled uploads
    threads: int

    @classmethod
    def by(cls, server: RunningServer) -> Self:
        """Skips the test on a system without /proc."""
        process = Path(f"/proc/{server.process.pid}")
        if not process.exists():
            pytest.skip("this system does not say what a process holds")
        text = httpx.get(f"{server.url}/metrics", timeout=60, verify=False).text
        metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return cls(
            sessions=int(float(metrics["rse_sessions"])),
            uploads=int(float(metrics["rse_uploads"])),
            tasks=int(float(metrics.get("rse_tasks", 0))),
            files=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
        )


async def cut_off(server: RunningServer, request: bytes, at: int) -> None:
    """Sends the first bytes of a request and resets the connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request[:at])
    await writer.drain()
    writer.transport.abort()


async def vanish(server: RunningServer, dice: random.Random) -> None:
    """Opens a session, or half of one, and is gone without a word."""
    match dice.randrange(6):
        case 0:
            request = HANDSHAKE.format(port=server.port).encode()
            await cut_off(server, request, dice.randrange(len(request) + 1))
        case 1:
            request = UPLOAD.format(port=server.port).encode() + bytes(2_000_000)
            await cut_off(server, request, dice.randrange(len(request)))
        case _:
            async with connect_to(server) as socket:
                session = ServerSession(socket)
                if dice.random() < 0.9:
                    await session.start()
                    await session.play(AUDIO[: dice.randrange(len(AUDIO))])
                    await asyncio.sleep(dice.uniform(0, 0.2))
                if dice.random() < 0.3:
                    await socket.send('{"type": "stop"}')
                socket.transport.abort()


async def test_visitors_killed_at_random_moments_leave_nothing_behind(
    start_server: StartServer,
) -> None:
    server = start_server(*TONES, RSE_MAX_SESSIONS=str(VISITORS))
    await check_transcription(server)
    await wait_until(lambda: Held.by(server).sessions == 0, lambda: Held.by(server))
    before = Held.by(server)
    dice = random.Random(7)
    async with asyncio.TaskGroup() as group:
        for _ in range(VISITORS):
            group.create_task(vanish(server, random.Random(dice.random())))

    def all_given_back() -> bool:
        now = Held.by(server)
        return (
            now.sessions == now.uploads == 0
            and now.tasks <= before.tasks
            and now.files <= before.files
            and now.threads <= before.threads + POOL_THREADS
        )

    await wait_until(all_given_back, lambda: (before, Held.by(server)))
    await check_transcription(server)
    assert "Traceback" not in server.log
