"""Test of clients that disconnect abruptly: the server must release all their resources."""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from tests.service.servers import TONES, RunningServer, StartServer, wait_until
from tests.service.talk import AUDIO, HANDSHAKE, ServerSession, check_transcription, connect_to

CLIENTS = 50
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)  # asyncio keeps these for blocking calls
UPLOAD = (
    "POST /transcribe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 4000000\r\n"
    "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    '--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
)


@dataclass(frozen=True)
class Resources:
    """Resources that a server uses."""

    sessions: int
    uploads: int
    tasks: int  # in the event loop, counted by `tests.service.serve_fake`
    files: int  # open descriptors: sockets, pipes, spooled uploads
    threads: int

    @classmethod
    def of(cls, server: RunningServer) -> Self:
        """Return the resources that a server uses now."""
        process = Path(f"/proc/{server.process.pid}")
        text = httpx.get(f"{server.url}/metrics", timeout=60, verify=False).text
        metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return cls(
            sessions=int(float(metrics["rse_sessions"])),
            uploads=int(float(metrics["rse_uploads"])),
            tasks=int(float(metrics.get("rse_tasks", 0))),
            files=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
        )


async def reset_after(server: RunningServer, request: bytes, byte_count: int) -> None:
    """Send the first bytes of a request and reset the connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request[:byte_count])
    await writer.drain()
    writer.transport.abort()


async def disconnect_abruptly(server: RunningServer, rng: random.Random) -> None:
    """Start a session or an upload, and reset the connection at a random moment."""
    match rng.randrange(6):
        case 0:
            request = HANDSHAKE
            await reset_after(server, request, rng.randrange(len(request) + 1))
        case 1:
            request = UPLOAD.format(port=server.port).encode() + bytes(2_000_000)
            await reset_after(server, request, rng.randrange(len(request)))
        case _:
            async with connect_to(server) as socket:
                session = ServerSession(socket)
                if rng.random() < 0.9:
                    await session.start()
                    await session.play(AUDIO[: rng.randrange(len(AUDIO))])
                    await asyncio.sleep(rng.uniform(0, 0.2))
                if rng.random() < 0.3:
                    await socket.send('{"type": "stop"}')
                socket.transport.abort()


async def test_disconnected_clients_leak_no_resources(start_server: StartServer) -> None:
    server = start_server(*TONES, RSE_MAX_SESSIONS=str(CLIENTS))
    await check_transcription(server)
    await wait_until(lambda: Resources.of(server).sessions == 0, lambda: Resources.of(server))
    before = Resources.of(server)
    rng = random.Random(7)
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(disconnect_abruptly(server, random.Random(rng.random())))

    def all_released() -> bool:
        now = Resources.of(server)
        return (
            now.sessions == now.uploads == 0
            and now.tasks <= before.tasks
            and now.files <= before.files
            and now.threads <= before.threads + POOL_THREADS
        )

    await wait_until(all_released, lambda: (before, Resources.of(server)))
    await check_transcription(server)
    assert "Traceback" not in server.log
