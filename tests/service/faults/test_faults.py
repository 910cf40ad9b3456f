"""Faults that a server in a process of its own outlives: of its clients, its model, its worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.fakes import play
from tests.service.apps import RATE_HZ, check_notes
from tests.service.conftest import TONES, RunningServer, StartServer, server_starter
from tests.service.faults.held import PATIENCE_S, Held, wait_until
from tests.service.serve_fake import HANGING, RAISING
from tests.service.talk import AUDIO, Talk, reach, transcribes

pytestmark = pytest.mark.timeout(400)  # on a busy machine a process takes long to start

HALF = len(AUDIO) // 4 * 2
VISITORS = 50
# asyncio keeps the threads that it has begun for blocking calls, up to so many.
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with server_starter(tmp_path_factory.mktemp("server")) as start:
        yield start(
            *TONES,
            RSE_MAX_SESSIONS=str(VISITORS),
            RSE_MAX_SESSIONS_PER_CLIENT=str(VISITORS),
            RSE_MAX_REQUEST_BURST="1000000",
            RSE_HANG_TIMEOUT_S="5",
        )


# -- clients that vanish --------------------------------------------------------------------------

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


async def cut_off(server: RunningServer, request: bytes, at: int) -> None:
    """Sends so many bytes of a request and resets the connection."""
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
            async with reach(server) as socket:
                talk = Talk(socket)
                if dice.random() < 0.9:
                    await talk.start()
                    await talk.play(AUDIO[: dice.randrange(len(AUDIO))])
                    await asyncio.sleep(dice.uniform(0, 0.2))
                if dice.random() < 0.3:
                    await socket.send('{"type": "stop"}')
                socket.transport.abort()


async def test_visitors_killed_at_random_moments_leave_nothing_behind(
    server: RunningServer,
) -> None:
    await transcribes(server)
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
    await transcribes(server)
    assert "Traceback" not in server.log


async def test_a_client_that_falls_silent_without_closing_is_let_go(
    start_server: StartServer,
) -> None:
    """Its machine lost its power, say: no message, no FIN, nothing that is sent to it is read."""
    server = start_server(*TONES, RSE_IDLE_TIMEOUT_S="1")
    await wait_until(lambda: Held.by(server).sessions == 0, lambda: Held.by(server))
    before = Held.by(server)
    start = f"{server.websocket_url}?encoding=pcm_s16le&sample_rate={RATE_HZ}"
    async with connect(start, open_timeout=PATIENCE_S) as socket:
        socket.transport.pause_reading()
        with contextlib.suppress(ConnectionClosed):  # a slow client may be let go on the way
            await Talk(socket).play(AUDIO)

        def all_given_back() -> bool:
            now = Held.by(server)
            return now.sessions == 0 and now.files <= before.files and now.tasks <= before.tasks

        await wait_until(all_given_back, lambda: (before, Held.by(server)))
        socket.transport.abort()


# -- a model that fails ---------------------------------------------------------------------------


def loud(level: float) -> bytes:
    """Half a second of a tone, as floats."""
    return play([(69, 0.0, 0.5)], 0.5, RATE_HZ, level).astype("<f4").tobytes()


async def test_a_batch_that_raises_ends_its_own_session_alone(server: RunningServer) -> None:
    async with reach(server) as first, reach(server) as second, reach(server) as third:
        others = [Talk(first), Talk(second)]
        for other in others:
            await other.start()
            await other.play(AUDIO[:HALF])
            await other.flush()  # so that none of theirs is in the batch
        unlucky = Talk(third)
        await unlucky.start(encoding="pcm_f32le")
        await unlucky.play(loud(RAISING))
        assert await unlucky.to_the_end() == 1011
        (error,) = [message for message in unlucky.heard if message["type"] == "error"]
        assert (error["code"], error["retryable"]) == ("internal", True)
        assert "failing batch" not in error["message"]
        assert (unlucky.heard[-1]["type"], unlucky.heard[-1]["reason"]) == ("done", "error")
        check_notes(unlucky.heard)
        for other in others:
            await other.play(AUDIO[HALF:])
            await other.stop()
    await transcribes(server)


async def test_a_worker_that_hangs_is_replaced_and_its_sessions_are_told(
    server: RunningServer,
) -> None:
    async with reach(server) as first, reach(server) as second:
        bystander, unlucky = Talk(first), Talk(second)
        await bystander.start()
        await bystander.play(AUDIO[:HALF])
        await bystander.flush()
        await unlucky.start(encoding="pcm_f32le")
        await unlucky.play(loud(HANGING))
        assert await unlucky.to_the_end() == 1011
        with contextlib.suppress(ConnectionClosed):  # it may be told before it has sent all
            await bystander.play(AUDIO[HALF:])
        assert await bystander.to_the_end() == 1011
        for talk in (bystander, unlucky):
            (error,) = [message for message in talk.heard if message["type"] == "error"]
            assert (error["code"], error["retryable"]) == ("internal", True)
            assert (talk.heard[-1]["type"], talk.heard[-1]["reason"]) == ("done", "error")
            check_notes(talk.heard)
    await asyncio.to_thread(server.wait_until_ready)
    await transcribes(server)
