"""The service on a real Ray Serve: the notes of the single process, whichever replica dies."""

import asyncio
import itertools
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from clients.client import TranscriptionClient
from clients.events import Disconnected, Event
from model import storage
from service.cluster.flow import TOO_FAR_AHEAD
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn
from tests.service.apps import RATE_HZ, START, chunks, perform, serving, sound_file
from tests.service.cluster.conftest import PATIENCE_S, Cluster
from tests.service.cluster.test_documents import CONFIG
from tests.service.cluster.test_engine import chords

SESSIONS = 2  # of an ingress replica: four clients fill two of them
LIMITS = {
    "max_sessions": SESSIONS,
    "max_requests_per_s": 1e6,
    "max_request_burst": 1_000_000,
    "idle_timeout_s": 3600.0,
    "hang_timeout_s": 600.0,
    "drain_timeout_s": PATIENCE_S,  # however late, sessions hear of it first
}
# Chords without a rest, in three parts: notes begin in each, and some sound where it ends.
SECONDS = 4.08
AUDIO = chords(SECONDS)
PART_BYTES = len(AUDIO) // 3
PARTS_END_S = (SECONDS / 3, SECONDS * 2 / 3, SECONDS)
LATEST_S = 0.5  # within which a note is sent, if more audio has come
OPTIONS = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE_HZ)
PATIENT: dict[str, Any] = {"open_timeout": PATIENCE_S, "ping_timeout": PATIENCE_S}

pytestmark = pytest.mark.timeout(900)  # of a machine that does much else; a minute of one that not


def notes(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in message.items() if name != "seq"}
        for message in messages
        if message["type"] in ("note_on", "note_off")
    ]


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    """The notes that the application without Ray tells."""
    network: Any = storage.load("live")
    with serving(network) as (client, _):
        reported = notes(perform(client, AUDIO)[1])
    for end_s in PARTS_END_S[:-1]:
        before = [one["type"] for one in reported if one["time_s"] < end_s]
        assert before.count("note_on") > before.count("note_off")  # some sound
    return reported


def begun(expected: list[dict[str, Any]], part: int) -> int:
    """Notes that must have begun when this part, counted from 0, was sent."""
    latest_s = PARTS_END_S[part] - LATEST_S
    return sum(one["type"] == "note_on" and one["time_s"] < latest_s for one in expected)


def transcribe(cluster: Cluster, pcm: bytes, chunk_bytes: int) -> list[dict[str, Any]]:
    """The notes that the cluster tells of audio in chunks of this size."""
    with connect(cluster.websocket_url, **PATIENT, compression=None) as socket:
        socket.send(json.dumps(START))
        for chunk in chunks(pcm, chunk_bytes):
            socket.send(chunk)
        socket.send('{"type": "stop"}')
        return notes([json.loads(message) for message in socket])


def assert_full(cluster: Cluster) -> None:
    for _ in range(4):
        with pytest.raises(InvalidStatus) as refusal:
            connect(cluster.websocket_url, **PATIENT)
        assert refusal.value.response.status_code == 503
        assert json.loads(refusal.value.response.body)["code"] == "too_many_sessions"


def deploy_one(cluster: Cluster) -> None:
    cluster.deploy(ingresses=1, models=2, training="once", settings=LIMITS)


def deploy_two(cluster: Cluster) -> None:
    """After `deploy_one` a rolling upgrade of all replicas, and of the weights."""
    cluster.deploy(ingresses=2, models=2, training="twice", settings=LIMITS)


def test_the_notes_are_those_of_the_single_process(
    cluster: Cluster, expected: list[dict[str, Any]]
) -> None:
    deploy_one(cluster)
    for chunk_bytes in (882, 4_001, len(AUDIO)):
        assert transcribe(cluster, AUDIO, chunk_bytes) == expected


def test_the_config_file_is_one_of_serve(cluster: Cluster) -> None:
    cluster.command("check", file=str(CONFIG))


def test_the_other_endpoints_are_those_of_the_single_process(cluster: Cluster) -> None:
    deploy_one(cluster)
    with httpx.Client(base_url=cluster.url, timeout=PATIENCE_S) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json()["max_sessions"] == SESSIONS
        assert client.get("/info").json()["model"] == "live"
        assert "rse_sessions " in client.get("/metrics").text
        assert "<html" in client.get("/").text
        assert client.get("/info", headers={"Host": "elsewhere.example"}).status_code == 421
        file = sound_file(np.frombuffer(AUDIO, "<i2"))
        answer = client.post("/transcribe", files={"file": file})
        assert answer.content.startswith(b"MThd")


def send_without_end(socket: ClientConnection) -> None:
    while True:
        socket.send(bytes(100_000))
        time.sleep(0.001)  # the thread that hears of the close needs the lock that a send holds


def test_a_client_far_ahead_of_its_session_is_cut_off(cluster: Cluster) -> None:
    """Serve's proxy reads on, however little the session does."""
    deploy_one(cluster)
    with connect(cluster.websocket_url, **PATIENT, compression=None) as socket:
        socket.send(json.dumps(START))
        with pytest.raises(ConnectionClosed) as closed:
            send_without_end(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == TOO_FAR_AHEAD


class Performer:
    """A client whose audio comes in parts, when the test says so."""

    def __init__(self, client: TranscriptionClient) -> None:
        self.client = client
        self.events: list[Event] = []
        self._sent = 0

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [
            event.model_dump(exclude={"seq"}, exclude_none=True)
            for event in self.events
            if isinstance(event, NoteOn | NoteOff)
        ]

    @property
    def begun(self) -> int:
        return sum(isinstance(event, NoteOn) for event in self.events)

    @property
    def breaks(self) -> list[str]:
        """Why sessions ended before the performance did."""
        return [str(event.error) for event in self.events if isinstance(event, Disconnected)]

    async def listen(self) -> None:
        async for event in self.client:
            self.events.append(event)

    async def play(self, notes_begun: int) -> None:
        """The next part; returns once so many notes have begun."""
        part = AUDIO[self._sent : self._sent + PART_BYTES]
        self._sent += len(part)
        for chunk in chunks(part, 882):
            await self.client.send(chunk)
        async with asyncio.timeout(PATIENCE_S):
            while self.begun < notes_begun:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def performers(
    cluster: Cluster, count: int, expected: list[dict[str, Any]]
) -> AsyncIterator[list[Performer]]:
    """Live clients that have played the first part; after the body they come to their end."""
    async with asyncio.TaskGroup() as group:
        them = []
        for _ in range(count):
            client = TranscriptionClient(
                cluster.url,
                OPTIONS,
                hold_notes_s=PATIENCE_S,
                give_up_s=PATIENCE_S,
                open_timeout_s=PATIENCE_S,
                stall_timeout_s=PATIENCE_S,
                delays=lambda: itertools.repeat(0.2),
            )
            client.start()
            them.append(Performer(client))
            group.create_task(them[-1].listen())
        try:
            await asyncio.gather(*(one.play(begun(expected, 0)) for one in them))
            assert all(0 < one.begun < begun(expected, 1) for one in them)
            yield them
            for one in them:
                await one.client.stop()
        finally:
            for one in them:
                await one.client.close()
    for one in them:
        assert one.notes == expected  # not one lost, stuck or reported twice


async def test_clients_resume_through_a_rolling_upgrade(
    cluster: Cluster, expected: list[dict[str, Any]]
) -> None:
    """All replicas of both kinds are replaced, and the weights with them."""
    await asyncio.to_thread(deploy_one, cluster)
    before = await asyncio.to_thread(cluster.command, "replicas")
    async with performers(cluster, SESSIONS, expected) as them:
        upgrade = asyncio.create_task(asyncio.to_thread(deploy_two, cluster))
        await asyncio.gather(*(one.play(begun(expected, 1)) for one in them))
        await upgrade
        await asyncio.gather(*(one.play(begun(expected, 2)) for one in them))
        after = await asyncio.to_thread(cluster.command, "replicas")
    for kind in ("Ingress", "Model"):
        old = {one["id"] for one in before[kind]}
        assert old.isdisjoint(one["id"] for one in after[kind] if one["state"] == "RUNNING")
    for one in them:
        assert one.client.sessions > 1
        # The reason was the drain or, where that came first, the weights.
        reported = "shutting down|weights were replaced"
        assert any(re.search(reported, reason) for reason in one.breaks)


async def test_a_killed_model_replica_is_not_noticed_and_a_killed_session_resumes(
    cluster: Cluster, expected: list[dict[str, Any]]
) -> None:
    """Four clients fill both ingress replicas; the two that lose theirs go on where a new one takes
    its place."""
    await asyncio.to_thread(deploy_two, cluster)
    async with performers(cluster, 2 * SESSIONS, expected) as them:
        await asyncio.to_thread(assert_full, cluster)
        first, _ = await asyncio.to_thread(cluster.running, "Model")
        os.kill(first, signal.SIGKILL)
        await asyncio.gather(*(one.play(begun(expected, 1)) for one in them))
        assert all(one.client.sessions == 1 for one in them)
        first, _ = await asyncio.to_thread(cluster.running, "Ingress")
        os.kill(first, signal.SIGKILL)
        await asyncio.gather(*(one.play(begun(expected, 2)) for one in them))
    assert sum(one.client.sessions > 1 for one in them) == SESSIONS
