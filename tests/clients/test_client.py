"""A performance through the client: notes, flow control, and every way in which it can end."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest

from clients.client import TranscriptionClient
from clients.events import (
    ConnectError,
    ConnectionLostError,
    Event,
    ServerError,
    SessionEndedError,
    TranscriptionError,
)
from clients.session import websocket_url
from service.protocol.client_messages import Start
from service.protocol.options import Encoding
from service.protocol.server_messages import NoteOff, NoteOn, Progress
from tests.clients.fake_service import Behaviour, FakeService
from tests.paths import REPOSITORY

RATE = 8_000
OPTIONS = Start(encoding=Encoding.PCM_S16LE, sample_rate=RATE)


def seconds(count: float) -> bytes:
    return bytes(2 * round(count * RATE))


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


async def test_a_fast_sender_is_heard_whole_in_pieces_that_the_server_takes() -> None:
    options = Start(encoding=Encoding.PCM_F32LE, sample_rate=RATE, channels=2, lookahead_ms=50)
    behaviour = Behaviour(
        max_message_bytes=3_000, max_buffered_ms=500, seconds_to_transcribe_a_second=0.005
    )
    async with FakeService(behaviour).running() as service:
        async with TranscriptionClient(service.url, options) as client:
            reading = asyncio.create_task(collect(client))
            await client.send(bytes(20 * RATE * 8))
            done = await client.stop()
            events, failure = await reading
        (heard,) = service.sessions
    assert failure is None
    assert heard.start["lookahead_ms"] == 50
    assert heard.samples == client.sent_samples == 20 * RATE
    assert heard.largest_message <= 3_000
    # What is on its way beyond the window is the message that filled it.
    assert heard.largest_unacknowledged_samples <= 0.5 * RATE + 3_000 // 8
    assert heard.flushes > 0
    assert [event.pitch for event in events if isinstance(event, NoteOn)] == [*range(60, 80)]
    assert_no_stuck_note(events)
    assert any(isinstance(event, Progress) for event in events)
    assert (done.reason, done.totals.notes) == ("stop", 20)
    assert done.midi.startswith(b"MThd")


async def test_the_servers_error_comes_after_the_last_note_with_the_midi() -> None:
    async with FakeService(Behaviour(fail_at_samples=3 * RATE // 2)).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(seconds(1.5))
            events, failure = await collect(client)
            with pytest.raises(ServerError, match="NaN"):
                await client.send(seconds(1))
            with pytest.raises(ServerError, match="NaN"):
                await client.stop()
    assert isinstance(failure, ServerError)
    assert failure.code == "bad_audio"
    assert failure.done is not None
    assert failure.done.midi.startswith(b"MThd")
    assert_no_stuck_note(events)


async def test_closing_early_leaves_no_note_sounding_and_is_no_error() -> None:
    async with FakeService().running() as service:
        client = TranscriptionClient(service.url, OPTIONS)
        await client.connect()
        await client.send(seconds(1.5))
        iterator = aiter(client)
        events: list[Event] = [await anext(iterator)]
        while not (isinstance(events[-1], NoteOn) and events[-1].pitch == 61):
            events.append(await anext(iterator))
        await client.close()
        events += [event async for event in iterator]
        with pytest.raises(SessionEndedError):
            await client.send(seconds(1))
    assert_no_stuck_note(events)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (HTTPStatus.BAD_GATEWAY, True),  # a proxy without a server
        (HTTPStatus.TOO_MANY_REQUESTS, True),
        (HTTPStatus.UNAUTHORIZED, False),
    ],
)
async def test_which_refusals_are_worth_another_attempt(
    status: HTTPStatus, retryable: bool
) -> None:
    async with FakeService(Behaviour(refuse_with=status)).running() as service:
        with pytest.raises(ConnectError) as caught:
            await TranscriptionClient(service.url, OPTIONS).connect()
    assert caught.value.retryable is retryable


async def test_a_caller_that_waits_no_longer_for_a_connection_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        client = TranscriptionClient(f"http://127.0.0.1:{port}", OPTIONS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), client:
                pass
        performing = [task.get_coro() for task in asyncio.all_tasks()]
        assert not [coro for coro in performing if "_perform" in repr(coro)]


async def test_a_silent_server_does_not_hold_the_caller_for_ever() -> None:
    async with FakeService(Behaviour(silent_after_ready=True)).running() as service:
        async with TranscriptionClient(
            service.url, OPTIONS, stall_timeout_s=0.2, give_up_s=0
        ) as client:
            with pytest.raises(ConnectionLostError, match="no message from the server"):
                await client.send(seconds(5))
            with pytest.raises(ConnectionLostError, match="no message from the server"):
                await client.stop()


@pytest.mark.parametrize(
    "raw",
    [
        "no json",
        json.dumps({"seq": 7, "type": "draining"}),  # 1 to 6 are missing
        json.dumps({"seq": 1, "type": "note_on", "pitch": 60}),
    ],
)
async def test_a_server_that_breaks_the_protocol_ends_the_session(raw: str) -> None:
    async with FakeService(Behaviour(extra_messages=[raw])).running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            _, failure = await collect(client)
    assert failure is not None
    assert not failure.retryable


async def test_the_example_in_the_readme_runs() -> None:
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


async def test_an_incomplete_last_sample_is_reported_after_everything_else() -> None:
    async with FakeService().running() as service:
        async with TranscriptionClient(service.url, OPTIONS) as client:
            await client.send(seconds(2) + b"?")
            with pytest.raises(TranscriptionError, match="in the middle of a sample") as caught:
                await client.stop()
    assert caught.value.done is not None
    assert caught.value.done.totals.notes == 2


@pytest.mark.parametrize(
    ("given_url", "wanted"),
    [
        ("http://host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/", "wss://host/ws/transcribe"),
        ("host:8000", "ws://host:8000/ws/transcribe"),
        ("https://host/music/", "wss://host/music/ws/transcribe"),
        ("ws://host/music/ws/transcribe?mode=block", "ws://host/music/ws/transcribe?mode=block"),
    ],
)
def test_any_address_of_the_service_leads_to_its_websocket(given_url: str, wanted: str) -> None:
    assert websocket_url(given_url) == wanted


@pytest.mark.parametrize("url", ["ftp://host", "http://", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="invalid service address"):
        websocket_url(url)
