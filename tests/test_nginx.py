"""Tests of docker/nginx.conf with a real nginx and real processes of the service."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from clients import client as client_module
from clients import session
from clients.client import TranscriptionClient
from clients.events import Event
from service.access.keys import hash_key
from service.protocol.client_messages import Start, to_json
from service.protocol.command_line import KEY_VARIABLE
from service.protocol.options import Encoding
from service.settings import Settings
from tests.clients.test_client import assert_no_stuck_note, collect
from tests.conftest import require_system
from tests.fakes import play
from tests.paths import REPOSITORY
from tests.service.apps import MELODY, PITCHES, RATE_HZ, chunks, pcm16, pitches_of
from tests.service.nginx import nginx
from tests.service.servers import TONES, RunningServer, server_starter, wait_until
from tests.service.upload.test_real_uploads import FILE_HEAD, flac

TIMEOUT_S = 120.0
TIMEOUTS: dict[str, Any] = {"open_timeout": TIMEOUT_S, "ping_timeout": TIMEOUT_S}
REPEATS = 3
PERIOD_S = 2.0
SONG = pcm16(
    play(
        [(p, t + n * PERIOD_S, end + n * PERIOD_S) for n in range(REPEATS) for p, t, end in MELODY],
        REPEATS * PERIOD_S,
        RATE_HZ,
    )
)
OPTIONS = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
MAX_SESSIONS = 3  # per process
KEY = "rse_a-key-of-the-processes"
BEARER = {"Authorization": f"Bearer {KEY}"}
Pair = tuple[list[RunningServer], str]  # two servers, and the address of their proxy


def client_of(url: str) -> TranscriptionClient:
    return TranscriptionClient(url, OPTIONS, give_up_s=2 * TIMEOUT_S)


@pytest.fixture(autouse=True)
def _long_timeouts_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def fill(stack: AsyncExitStack, url: str, count: int) -> None:
    """Open ``count`` sessions. The stack closes them."""
    for _ in range(count):
        await stack.enter_async_context(client_of(url))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    require_system("nginx")
    folder = tmp_path_factory.mktemp("pair")
    with server_starter(folder) as start:
        settings = {
            "RSE_MAX_SESSIONS": str(MAX_SESSIONS),
            "RSE_MAX_UPLOADS": "1",
            "RSE_KEYS": f"alice:{hash_key(KEY).hex()}",
            "RSE_SECRET": 32 * "s",
        }
        servers = [start(*TONES, wait=False, **settings) for _ in range(2)]
        for server in servers:
            server.wait_until_ready()
        yield servers


@pytest.fixture
async def pair(servers: list[RunningServer], tmp_path: Path) -> AsyncIterator[Pair]:
    """Two idle servers, and the address of a new nginx in front of them."""
    await wait_until(lambda: not any(s.sessions() for s in servers))
    with nginx(servers, tmp_path / "nginx") as url:
        yield servers, url


async def connect_page(url: str) -> connect:
    """Return the websocket of a page that has requested a token."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
        response = await http.post(f"{url}/token", headers=BEARER)
    return connect(
        websocket(url),
        origin=Origin(url),
        subprotocols=[Subprotocol("rse.v1"), Subprotocol(f"rse.token.{response.json()['token']}")],
        **TIMEOUTS,
    )


def connect_program(url: str) -> connect:
    return connect(websocket(url), additional_headers=BEARER, **TIMEOUTS)


@pytest.mark.parametrize("as_page", [False, True])
async def test_sessions_avoid_a_full_process(pair: Pair, as_page: bool) -> None:
    """Includes pages, although a full process accepts their websockets to send an error."""
    (full, other), url = pair
    async with AsyncExitStack() as stack:
        await fill(stack, full.url, MAX_SESSIONS)
        for _ in range(MAX_SESSIONS):
            opening = await connect_page(url) if as_page else connect_program(url)
            socket = await stack.enter_async_context(opening)
            await socket.send(to_json(OPTIONS))
            assert json.loads(await socket.recv())["type"] == "ready"
        assert other.sessions() == MAX_SESSIONS


async def test_sessions_are_rejected_if_all_processes_are_full(pair: Pair) -> None:
    _, url = pair
    async with AsyncExitStack() as stack:
        await fill(stack, url, 2 * MAX_SESSIONS)
        with pytest.raises(InvalidStatus) as rejection:
            await connect_program(url)
        response = rejection.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        assert json.loads(response.body)["code"] == "too_many_sessions"
        async with await connect_page(url) as socket:
            assert json.loads(await socket.recv())["code"] == "too_many_sessions"
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4429


async def start_upload(port: int, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send the start of an upload that never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /transcribe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Length: 1000000\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    writer.write(head.encode() + FILE_HEAD)
    await writer.drain()
    return reader, writer


async def test_uploads_avoid_a_full_process(pair: Pair) -> None:
    (busy, _), url = pair
    _, writer = await start_upload(busy.port, KEY)
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=BEARER) as http:
            while (await http.post(f"{busy.url}/transcribe")).status_code != 503:
                await asyncio.sleep(0.02)
            for _ in range(2):
                response = await http.post(f"{url}/transcribe", files={"file": flac(10)})
                assert pitches_of(response.content) == PITCHES
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("path", ["", "/music"])
async def test_every_endpoint_works_through_the_proxy(pair: Pair, path: str) -> None:
    """Includes a score of 2,000 notes, whose request has more than 100 kB."""
    url = pair[1] + path
    notes = [
        {"onset_s": n / 4, "offset_s": n / 4 + 0.25, "pitch": 48 + n % 24} for n in range(2_000)
    ]
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
        for name in ("/", "/app.js", "/healthz", "/readyz"):
            assert (await http.get(url + name)).status_code == 200, name
        assert (await http.get(f"{url}/info")).status_code == 401
        http.headers = httpx.Headers(BEARER)
        assert (await http.get(f"{url}/info")).json()["ready"]
        assert (await http.get(f"{url}/metrics")).status_code == 404
        assert (await http.post(f"{url}/token")).json()["token"]
        response = await http.post(f"{url}/transcribe?answer=ndjson", files={"file": flac(10)})
        assert json.loads(response.text.splitlines()[-1])["type"] == "done"
        # With an invalid tempo the service checks all notes, but does not engrave a score.
        response = await http.post(f"{url}/score", json={"notes": notes, "bpm": 5})
        assert (response.status_code, response.json()["code"]) == (422, "bad_parameter")
        large = await http.post(f"{url}/score", content=bytes((4 << 20) + 1))
        assert large.status_code == 413
    client, events = await perform(url, lambda client: asyncio.sleep(0))
    assert len(client.notes.notes) == REPEATS * len(MELODY)
    assert_no_stuck_note(events)


async def test_rate_limits_permit_many_users_behind_one_address(pair: Pair) -> None:
    """30 users open the page at the same time, and each loads 60 files."""
    address = pair[1].removeprefix("http://")
    request = f"GET /app.js HTTP/1.1\r\nHost: {address}\r\n"

    async def load_page() -> bytes:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        requests = 59 * f"{request}\r\n" + f"{request}Connection: close\r\n\r\n"
        writer.write(requests.encode())
        try:
            return await reader.read()
        finally:
            writer.close()

    async with asyncio.timeout(TIMEOUT_S):
        responses = await asyncio.gather(*(load_page() for _ in range(30)))
    assert [response.count(b"HTTP/1.1 200 ") for response in responses] == 30 * [60]


async def test_rate_limit_includes_uploads(servers: list[RunningServer], tmp_path: Path) -> None:
    def lower_limit(text: str) -> str:
        return text.replace("rate=200r/s", "rate=1r/m").replace("burst=3000", "burst=4")

    with nginx(servers, tmp_path / "nginx", lower_limit) as url:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
            statuses = [(await http.post(f"{url}/transcribe")).status_code for _ in range(6)]
    assert statuses[0] == 401  # without a key
    assert statuses[-1] == 429


async def test_unauthorised_uploads_are_not_buffered(pair: Pair) -> None:
    """The response arrives before the end of the body."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await start_upload(int(pair[1].rpartition(":")[2]), "x")
        response = await reader.readuntil(b'"code":"unauthorized"')
    writer.transport.abort()
    assert response.startswith(b"HTTP/1.1 401 ")


def websocket(url: str) -> str:
    return url.replace("http", "ws", 1) + "/ws/transcribe"


async def perform(
    url: str, pause: Callable[[TranscriptionClient], Awaitable[None]]
) -> tuple[TranscriptionClient, list[Event]]:
    """Send the song, with a pause after its first and its second third."""
    data = chunks(SONG)
    async with client_of(url) as client:
        reading = asyncio.create_task(collect(client))
        for n, chunk in enumerate(data):
            if n in (len(data) // 3, 2 * len(data) // 3):
                await pause(client)
            await client.send(chunk)
        await client.stop()
        events, failure = await reading
    assert failure is None
    return client, events


async def test_live_clients_survive_killed_and_draining_processes(tmp_path: Path) -> None:
    client_count = 4
    barrier = asyncio.Barrier(client_count + 1)

    async def wait_for_fault(client: TranscriptionClient) -> None:
        """Wait until all clients have received notes of this third, and then for the fault."""
        count = len(client.notes.notes)
        async with asyncio.timeout(TIMEOUT_S):
            while len(client.notes.notes) <= count:
                await asyncio.sleep(0.01)
        await barrier.wait()
        await barrier.wait()

    require_system("nginx")
    with server_starter(tmp_path) as start:
        # A fixed limit: with `auto`, a process on a busy machine may reject its sessions.
        servers = [start(*TONES, wait=False, RSE_MAX_SESSIONS="8") for _ in range(3)]
        for server in servers:
            server.wait_until_ready()
        first, second, third = servers
        uninterrupted, _ = await perform(third.url, lambda client: asyncio.sleep(0))
        with nginx(servers, tmp_path / "nginx") as url:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(perform(url, wait_for_fault)) for _ in range(client_count)
                ]
                await barrier.wait()
                assert first.sessions() >= 1
                first.process.kill()
                await barrier.wait()
                await barrier.wait()
                assert second.sessions() >= 1
                draining = group.create_task(asyncio.to_thread(second.terminate))
                await barrier.wait()
        assert draining.result() == 0
        await wait_until(lambda: third.sessions() == 0)
    assert len(uninterrupted.notes.notes) == REPEATS * len(MELODY)
    performances = [task.result() for task in tasks]
    for client, events in performances:
        assert client.notes.notes == uninterrupted.notes.notes
        assert_no_stuck_note(events)
        assert client.performance.lost_samples == 0
    assert max(client.performance.sessions for client, _ in performances) >= 2
    for server in (second, third):
        assert "Traceback" not in server.log


def test_nginx_limits_match_the_settings() -> None:
    text = (REPOSITORY / "docker" / "nginx.conf").read_text(encoding="utf-8")
    settings = Settings()
    assert f"client_max_body_size {settings.max_upload_bytes // 1024**2}m;" in text
    (shutdown_s,) = re.findall(r"worker_shutdown_timeout (\d+)s;", text)
    assert int(shutdown_s) > settings.drain_timeout_s
