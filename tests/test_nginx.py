"""docker/nginx.conf under a real nginx, before real processes of the service."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial
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

PATIENCE_S = 60.0
PATIENT: dict[str, Any] = {"open_timeout": PATIENCE_S, "ping_timeout": PATIENCE_S}
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
PLACES = 3  # sessions of each process
KEY = "rse_a-key-of-the-processes"
BEARER = {"Authorization": f"Bearer {KEY}"}


def configuration(ports: Sequence[int], listen: int) -> str:
    """docker/nginx.conf with other addresses, and also below the path /music/."""
    text = (REPOSITORY / "docker" / "nginx.conf").read_text(encoding="utf-8")
    pattern = r"( +server 127\.0\.0\.1:)8001( .*;\n) +server 127\.0\.0\.1:8002 .*;\n"

    def servers(match: re.Match[str]) -> str:
        return "".join(f"{match[1]}{port}{match[2]}" for port in ports)

    text, groups = re.subn(pattern, servers, text)
    text, listens = re.subn(r"listen 127\.0\.0\.1:8000;", f"listen 127.0.0.1:{listen};", text)
    text, rewrites = re.subn(r"# (rewrite .*;)", r"\1", text)
    assert (groups, listens, rewrites) == (2, 1, 1)
    return text


def balanced(servers: Sequence[RunningServer], folder: Path) -> AbstractContextManager[str]:
    """nginx before the servers; its address."""
    return nginx(partial(configuration, [server.port for server in servers]), folder)


def client_of(url: str) -> TranscriptionClient:
    return TranscriptionClient(url, OPTIONS, give_up_s=2 * PATIENCE_S)


@pytest.fixture(autouse=True)
def _patient_client_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv(session.KEY_VARIABLE, KEY)


async def fill(stack: AsyncExitStack, url: str, count: int) -> None:
    """So many sessions, open as long as the stack."""
    for _ in range(count):
        await stack.enter_async_context(client_of(url))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    require_system("nginx")
    folder = tmp_path_factory.mktemp("pair")
    with server_starter(folder) as start:
        settings = {
            "RSE_MAX_SESSIONS": str(PLACES),
            "RSE_MAX_UPLOADS": "1",
            "RSE_KEYS": f"alice:{hash_key(KEY).hex()}",
            "RSE_SECRET": 32 * "s",
        }
        servers = [start(*TONES, wait=False, **settings) for _ in range(2)]
        for server in servers:
            server.wait_until_ready()
        yield servers


@pytest.fixture
async def pair(
    two: list[RunningServer], tmp_path: Path
) -> AsyncIterator[tuple[list[RunningServer], str]]:
    """The two, free, and the address of an nginx before them that has not seen them yet."""
    await wait_until(lambda: not any(s.sessions() for s in two))
    with balanced(two, tmp_path / "nginx") as url:
        yield two, url


async def page(url: str) -> connect:
    """The websocket of a page, with a token that it has just got."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        answer = await http.post(f"{url}/token", headers=BEARER)
    return connect(
        websocket(url),
        origin=Origin(url),
        subprotocols=[Subprotocol("rse.v1"), Subprotocol(f"rse.token.{answer.json()['token']}")],
        **PATIENT,
    )


def program(url: str) -> connect:
    return connect(websocket(url), additional_headers=BEARER, **PATIENT)


@pytest.mark.parametrize("as_page", [False, True])
async def test_a_full_process_is_passed_by(
    pair: tuple[list[RunningServer], str], as_page: bool
) -> None:
    """For a page too, though a full process would let it in, to tell it."""
    (full, other), url = pair
    async with AsyncExitStack() as stack:
        await fill(stack, full.url, PLACES)
        for _ in range(PLACES):
            opening = await page(url) if as_page else program(url)
            talk = await stack.enter_async_context(opening)
            await talk.send(to_json(OPTIONS))
            assert json.loads(await talk.recv())["type"] == "ready"
        assert other.sessions() == PLACES


async def test_if_all_are_full_programs_and_pages_get_an_error(
    pair: tuple[list[RunningServer], str],
) -> None:
    servers, url = pair
    async with AsyncExitStack() as stack:
        await fill(stack, url, 2 * PLACES)
        with pytest.raises(InvalidStatus) as refused:
            await program(url)
        response = refused.value.response
        assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
        assert json.loads(response.body)["code"] == "too_many_sessions"
        async with await page(url) as talk:
            assert json.loads(await talk.recv())["code"] == "too_many_sessions"
            with pytest.raises(ConnectionClosed) as closed:
                await talk.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4429


async def begin_post(port: int, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """An upload that does not end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /transcribe HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Length: 1000000\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n"
    )
    writer.write(head.encode() + FILE_HEAD)
    await writer.drain()
    return reader, writer


async def test_recordings(pair: tuple[list[RunningServer], str]) -> None:
    """An upload finds the process that has a place."""
    (busy, _), url = pair
    _, writer = await begin_post(busy.port, KEY)
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S, headers=BEARER) as http:
            while (await http.post(f"{busy.url}/transcribe")).status_code != 503:
                await asyncio.sleep(0.02)
            for _ in range(2):
                answer = await http.post(f"{url}/transcribe", files={"file": flac(10)})
                assert pitches_of(answer.content) == PITCHES
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("path", ["", "/music"])
async def test_every_endpoint_works_through_the_proxy(
    pair: tuple[list[RunningServer], str], path: str
) -> None:
    """Scores of 2,000 notes too, whose request has more than 100 kB."""
    url = pair[1] + path
    notes = [
        {"onset_s": n / 4, "offset_s": n / 4 + 0.25, "pitch": 48 + n % 24} for n in range(2_000)
    ]
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        for name in ("/", "/app.js", "/healthz", "/readyz"):
            assert (await http.get(url + name)).status_code == 200, name
        assert (await http.get(f"{url}/info")).status_code == 401
        http.headers = httpx.Headers(BEARER)
        assert (await http.get(f"{url}/info")).json()["ready"]
        assert (await http.get(f"{url}/metrics")).status_code == 404
        assert (await http.post(f"{url}/token")).json()["token"]
        answer = await http.post(f"{url}/transcribe?answer=ndjson", files={"file": flac(10)})
        assert json.loads(answer.text.splitlines()[-1])["type"] == "done"
        # The field is invalid so that the service checks all notes, but does not write a score.
        answer = await http.post(f"{url}/score", json={"notes": notes, "bpm": 5})
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_parameter")
        large = await http.post(f"{url}/score", content=bytes((4 << 20) + 1))
        assert large.status_code == 413
    client, events = await perform(url, lambda client: asyncio.sleep(0))
    assert len(client.notes.notes) == REPEATS * len(MELODY)
    assert_no_stuck_note(events)


async def test_a_class_behind_one_address_is_served(
    pair: tuple[list[RunningServer], str],
) -> None:
    """30 pupils open the page at one time: each loads 60 files."""
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

    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(load_page() for _ in range(30)))
    assert [answer.count(b"HTTP/1.1 200 ") for answer in answers] == 30 * [60]


async def test_no_body_of_a_stranger_is_held(pair: tuple[list[RunningServer], str]) -> None:
    """The answer comes before the body."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await begin_post(int(pair[1].rpartition(":")[2]), "x")
        answer = await reader.readuntil(b'"code":"unauthorized"')
    writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 401 ")


def websocket(url: str) -> str:
    return url.replace("http", "ws", 1) + "/ws/transcribe"


async def perform(
    url: str, pause: Callable[[TranscriptionClient], Awaitable[None]]
) -> tuple[TranscriptionClient, list[Event]]:
    """Plays the song, with a pause after each third but the last."""
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


async def test_live_clients_outlive_a_process_killed_and_one_that_drains(tmp_path: Path) -> None:
    players = 4
    meeting = asyncio.Barrier(players + 1)

    async def meet_twice(client: TranscriptionClient) -> None:
        """Meet when this client has received notes of this third, and again after the fault."""
        heard = len(client.notes.notes)
        async with asyncio.timeout(PATIENCE_S):
            while len(client.notes.notes) <= heard:
                await asyncio.sleep(0.01)
        await meeting.wait()
        await meeting.wait()

    require_system("nginx")
    with server_starter(tmp_path) as start:
        servers = [start(*TONES, wait=False) for _ in range(3)]
        for server in servers:
            server.wait_until_ready()
        first, second, third = servers
        whole, _ = await perform(third.url, lambda client: asyncio.sleep(0))
        with balanced(servers, tmp_path / "nginx") as url:
            async with asyncio.TaskGroup() as group:
                playing = [group.create_task(perform(url, meet_twice)) for _ in range(players)]
                await meeting.wait()
                assert first.sessions() >= 1
                first.process.kill()
                await meeting.wait()
                await meeting.wait()
                assert second.sessions() >= 1
                draining = group.create_task(asyncio.to_thread(second.terminate))
                await meeting.wait()
        assert draining.result() == 0
        await wait_until(lambda: third.sessions() == 0)
    assert len(whole.notes.notes) == REPEATS * len(MELODY)
    performances = [played.result() for played in playing]
    for client, events in performances:
        assert client.notes.notes == whole.notes.notes
        assert_no_stuck_note(events)
        assert client.performance.lost_samples == 0
    assert max(client.performance.sessions for client, _ in performances) >= 2
    for server in (second, third):
        assert "Traceback" not in server.log


def test_the_limits_are_those_of_the_settings() -> None:
    text = (REPOSITORY / "docker" / "nginx.conf").read_text(encoding="utf-8")
    settings = Settings()
    assert f"client_max_body_size {settings.max_upload_bytes // 1024**2}m;" in text
    (shutdown_s,) = re.findall(r"worker_shutdown_timeout (\d+)s;", text)
    assert int(shutdown_s) > settings.drain_timeout_s
