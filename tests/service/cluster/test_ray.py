"""Tests of the service on Ray Serve: it returns the notes of a single process."""

import asyncio
import json
import os
import signal
from typing import Any

import httpx
import pytest
import yaml
from websockets.sync.client import connect

from clients import session
from clients.client import TranscriptionClient
from model import storage
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn
from service.settings import Settings
from tests.clients.test_client import collect
from tests.fakes import play
from tests.paths import REPOSITORY
from tests.service.apps import RATE_HZ, START, chunks, pcm16, perform, serving, sound_file
from tests.service.cluster.conftest import KEY, TIMEOUT_S, Cluster
from tests.service.servers import wait_until

CONFIG = REPOSITORY / "docker" / "serve.yaml"
CHORDS = [(pitch, 0.5 * n, 0.5 * n + 0.45) for n in range(8) for pitch in (57, 64, 69)]
SAMPLES = play(CHORDS, 4.1, RATE_HZ, 0.1)
AUDIO = pcm16(SAMPLES)
KEY_HEADER = {"Authorization": f"Bearer {KEY}"}
LONG_TIMEOUTS: dict[str, Any] = {"open_timeout": TIMEOUT_S, "ping_timeout": TIMEOUT_S}

pytestmark = pytest.mark.timeout(900)  # usually a minute, longer on a busy machine


def notes(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in message.items() if name != "seq"}
        for message in messages
        if message["type"] in ("note_on", "note_off")
    ]


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    """Notes of the application without Ray."""
    network: Any = storage.load("live")
    with serving(network) as client:
        return notes(perform(client, AUDIO)[1])


def test_serve_yaml_has_valid_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (application,) = yaml.safe_load(CONFIG.read_text())["applications"]
    variables = dict(application["runtime_env"]["env_vars"])
    assert variables.pop("RELEASE")  # any value
    for name, value in variables.items():
        assert name.removeprefix("RSE_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    Settings()


def test_ray_returns_the_notes_of_a_single_process(
    cluster: Cluster, expected: list[dict[str, Any]]
) -> None:
    address = f"ws{cluster.url.removeprefix('http')}/ws/transcribe"
    with connect(
        address, **LONG_TIMEOUTS, compression=None, additional_headers=KEY_HEADER
    ) as socket:
        socket.send(json.dumps(START))
        for chunk in chunks(AUDIO, 882):
            socket.send(chunk)
        socket.send('{"type": "stop"}')
        assert notes([json.loads(message) for message in socket]) == expected
    with httpx.Client(base_url=cluster.url, timeout=TIMEOUT_S) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json()["max_sessions"] == 4
        assert client.get("/info").status_code == 401
        client.headers.update(KEY_HEADER)
        assert client.get("/info").json()["model"] == "live"
        assert "rse_sessions " in client.get("/metrics").text
        assert "<html" in client.get("/").text
        assert client.get("/info", headers={"Host": "elsewhere.example"}).status_code == 421
        response = client.post("/transcribe", files={"file": sound_file(SAMPLES)})
        assert response.content.startswith(b"MThd")


async def test_client_resumes_after_its_replica_was_killed(
    cluster: Cluster, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OPEN_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setenv("RSE_KEY", KEY)
    start = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
    timeouts = {"give_up_s": TIMEOUT_S, "stall_timeout_s": TIMEOUT_S}
    async with TranscriptionClient(cluster.url, start, **timeouts) as client:
        reading = asyncio.create_task(collect(client))
        for number, chunk in enumerate(chunks(AUDIO, 8_820)):
            await client.send(chunk)
            if number == len(AUDIO) // 8_820 // 2:
                await wait_until(lambda: bool(client.notes.notes), timeout_s=TIMEOUT_S)
                for pid in await asyncio.to_thread(cluster.processes, b"ServeReplica"):
                    os.kill(pid, signal.SIGKILL)
        await client.stop()
        events, failure = await reading
    assert failure is None
    assert client.performance.sessions > 1
    received = [event for event in events if isinstance(event, NoteOn | NoteOff)]
    # No note is lost, stuck or reported twice.
    assert notes([event.model_dump(exclude_none=True) for event in received]) == expected
