"""Tests of the live client: notes, flow control and all ways in which a performance can end."""

import asyncio
import base64
import json
import math
import re
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest

from clients import performance
from clients import session as session_module
from clients.client import TranscriptionClient
from clients.events import (
    ConnectError,
    ConnectionLostError,
    Event,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.midi import Note
from clients.session import MAX_SERVER_MESSAGE_BYTES, open_socket, websocket_url
from service.protocol.client_messages import Start
from service.protocol.command_line import KEY_VARIABLE, api_key
from service.protocol.midi_file import midi_file
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn, Progress
from service.stream.stream import MAX_NOTES
from tests.clients.fake_service import Behaviour, FakeService
from tests.paths import REPOSITORY

RATE = 8_000
OPTIONS = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE)


def silence(duration_s: float) -> bytes:
    return bytes(2 * round(duration_s * RATE))


async def collect(client: TranscriptionClient) -> tuple[list[Event], TranscriptionError | None]:
    events: list[Event] = []
    try:
        async for event in client:
            events.append(event)
    except TranscriptionError as error:
        return events, error
    return events, None


def assert_no_stuck_note(events: list[Event]) -> None:
    sounding: dict[int, NoteOn] = {}
    for event in events:
        if isinstance(event, NoteOn):
            sounding[event.note_id] = event
        elif isinstance(event, NoteOff):
            assert sounding.pop(event.note_id).time_s <= event.time_s
    assert any(isinstance(event, NoteOn) for event in events)
    assert not sounding


async def test_flow_control_keeps_to_the_server_limits() -> None:
    options = Start(encoding=Encoding.PCM_F32LE, sample_rate=RATE, channels=2, lookahead_ms=50)
    behaviour = Behaviour(
        max_message_bytes=3_000, max_buffered_ms=500, transcription_time_per_second=0.005
    )
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, options) as client:
            reading = asyncio.create_task(collect(client))
            await client.send(bytes(20 * RATE * 8))
            done = await client.stop()
            events, failure = await reading
        (session,) = service.sessions
    assert failure is None
    assert session.start["lookahead_ms"] == 50
    assert session.samples == client.sent_samples == 20 * RATE
    assert session.largest_message <= 3_000
    # The message that fills the window may exceed it.
    assert session.largest_unacknowledged_samples <= 0.5 * RATE + 3_000 // 8
    assert session.flushes > 0
    assert [event.pitch for event in events if isinstance(event, NoteOn)] == [*range(60, 80)]
    assert_no_stuck_note(events)
    assert any(isinstance(event, Progress) for event in events)
    assert (done.reason, done.totals.notes) == ("stop", 20)
    assert done.midi.startswith(b"MThd")


async def test_an_idle_client_keeps_its_session_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "KEEPALIVE_S", 0.01)
    async with FakeService().running() as service, asyncio.timeout(60):
        async with TranscriptionClient(service.url, OPTIONS) as client:
            while service.sessions[0].keepalives < 2:
                await asyncio.sleep(0.01)
            await client.stop()


async def test_a_server_error_follows_the_last_note() -> None:
    async with FakeService(Behaviour(fail_at_samples=3 * RATE // 2)).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(silence(1.5))
            events, failure = await collect(client)
            with pytest.raises(ServerError, match="NaN"):
                await client.send(silence(1))
            with pytest.raises(ServerError, match="NaN"):
                await client.stop()
    assert isinstance(failure, ServerError)
    assert failure.code == "bad_audio"
    assert failure.done is not None
    assert failure.done.midi.startswith(b"MThd")
    assert_no_stuck_note(events)


async def test_closing_early_ends_all_notes() -> None:
    async with FakeService().running() as service:
        client = TranscriptionClient(service.url, OPTIONS)
        await client.connect()
        await client.send(silence(1.5))
        iterator = aiter(client)
        events: list[Event] = [await anext(iterator)]
        while not (isinstance(events[-1], NoteOn) and events[-1].pitch == 61):
            events.append(await anext(iterator))
        await client.close()
        events += [event async for event in iterator]
        with pytest.raises(SessionEndedError):
            await client.send(silence(1))
    assert_no_stuck_note(events)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (HTTPStatus.BAD_GATEWAY, True),  # a proxy without a server
        (HTTPStatus.TOO_MANY_REQUESTS, True),
        (HTTPStatus.UNAUTHORIZED, False),
    ],
)
async def test_rejections_state_whether_to_retry(status: HTTPStatus, retryable: bool) -> None:
    async with FakeService(Behaviour(rejection_status=status)).running() as service:
        with pytest.raises(ConnectError) as caught:
            await TranscriptionClient(service.url, OPTIONS).connect()
    assert caught.value.retryable is retryable


async def test_an_invalid_key_is_not_part_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "rse_geheim\u00df")
    with pytest.raises(ConnectError, match="not an API key") as caught:
        await open_socket("ws://127.0.0.1:1", "{}")
    assert "geheim" not in str(caught.value)
    assert not caught.value.retryable
    monkeypatch.setenv(KEY_VARIABLE, "rse_key\n")  # the content of a file
    assert api_key() == "rse_key"


async def test_a_cancelled_connect_leaves_no_task() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unresponsive:
        port = unresponsive.getsockname()[1]
        client = TranscriptionClient(f"http://127.0.0.1:{port}", OPTIONS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), client:
                pass
        coroutines = [repr(task.get_coro()) for task in asyncio.all_tasks()]
        assert not [name for name in coroutines if "_perform" in name]


async def test_an_unresponsive_server_causes_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "DONE_TIMEOUT_S", 0.3)
    async with FakeService(Behaviour(unresponsive=True)).running() as service:
        async with TranscriptionClient(
            service.url, OPTIONS, stall_timeout_s=0.2, give_up_s=0
        ) as client:
            with pytest.raises(ConnectionLostError, match="no message from the server"):
                await client.send(silence(5))
            with pytest.raises(ConnectionLostError, match="no message from the server"):
                await client.stop()


async def test_the_server_may_write_a_long_midi_file_before_done() -> None:
    async with FakeService(Behaviour(done_after_s=0.5)).running() as service:
        async with TranscriptionClient(
            service.url, OPTIONS, stall_timeout_s=0.05, give_up_s=0
        ) as client:
            await client.stop()


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "socks_proxy", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    async with FakeService().running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.stop()


async def test_progress_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "MAX_UNREAD", 10)
    async with FakeService().running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(silence(30))
            await client.stop()
            events, _ = await collect(client)
    assert sum(isinstance(event, Progress) for event in events) < 10
    assert sum(isinstance(event, NoteOn) for event in events) == 30


@pytest.mark.parametrize(
    "raw",
    [
        "no json",
        json.dumps({"seq": 7, "type": "draining"}),  # Messages 1 to 6 are missing.
        json.dumps({"seq": 1, "type": "note_on", "pitch": 60}),
    ],
)
async def test_protocol_violations_end_the_session(raw: str) -> None:
    async with FakeService(Behaviour(extra_messages=[raw])).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            _, failure = await collect(client)
    assert failure is not None
    assert not failure.retryable


async def test_the_readme_example_runs() -> None:
    readme = (REPOSITORY / "clients" / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    names: dict[str, Any] = {}

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield bytes(2 * 48_000 // 10)

    async with FakeService().running() as service:
        exec(example.replace("http://127.0.0.1:8000", service.url), names)
        notes = await names["transcribe"](blocks())
    assert [note.pitch for note in notes] == [60, 61, 62]


async def test_an_incomplete_last_sample_is_reported_last() -> None:
    async with FakeService().running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(silence(2) + b"?")
            with pytest.raises(TranscriptionError, match="in the middle of a PCM frame") as caught:
                await client.stop()
    assert caught.value.done is not None
    assert caught.value.done.totals.notes == 2


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/", "wss://host/ws/transcribe"),
        ("host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/music/", "wss://host/music/ws/transcribe"),
        ("ws://host/music/ws/transcribe", "ws://host/music/ws/transcribe"),
        ("http://host:8000/?lang=de", "ws://host:8000/ws/transcribe"),
    ],
)
def test_service_addresses_become_websocket_urls(address: str, expected: str) -> None:
    assert websocket_url(address) == expected


@pytest.mark.parametrize("url", ["ftp://host", "http://", "", "ws://host:99999", "host:eight"])
def test_invalid_addresses_are_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="invalid service address"):
        websocket_url(url)


def test_largest_midi_file_with_bends_does_not_exceed_the_message_limit() -> None:
    duration_s = 2.0  # long for the average note of a performance
    vibrato = [30 * math.sin(0.4 * frame) for frame in range(round(duration_s * 86))]
    notes = [
        Note(i, 60, 80, 1.0, 0.3 * i, 0, 0.3 * i + duration_s, bends=vibrato) for i in range(100)
    ]
    file = base64.b64encode(midi_file(notes, [], {}))
    assert len(file) / len(notes) * MAX_NOTES < MAX_SERVER_MESSAGE_BYTES
