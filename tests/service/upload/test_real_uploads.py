"""Uploads to the service as a process: long recordings, clients that leave, too big bodies."""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from starlette.testclient import TestClient
from starlette.types import Message

from service.upload import answer as answers
from tests.service.apps import (
    LONG_TIMEOUT_S,
    PITCHES,
    RATE_HZ,
    check_notes,
    melody,
    scope,
    serving,
    sound_file,
    state_of,
)
from tests.service.servers import TONES, RunningServer, StartServer

FILE_HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@cache
def flac(seconds_of_silence: int = 0) -> bytes:
    """The melody and then silence, which takes next to no bytes."""
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", RATE_HZ, 1, format="FLAC", subtype="PCM_16") as file:
        file.write(melody())
        for _ in range(seconds_of_silence):
            file.write(np.zeros(RATE_HZ, np.float32))
    return buffer.getvalue()


@contextlib.asynccontextmanager
async def lines_of(server: RunningServer, seconds: int) -> AsyncIterator[httpx.Response]:
    """The answer to an upload as it comes."""
    how: dict[str, Any] = {"files": {"file": flac(seconds)}, "params": {"answer": "ndjson"}}
    async with httpx.AsyncClient(timeout=60) as client:
        async with client.stream("POST", f"{server.url}/transcribe", **how) as answer:
            yield answer


async def test_the_end_waits_for_uploads_under_way_and_not_for_those_still_received(
    start_server: StartServer,
) -> None:
    server = start_server(*TONES, RSE_DRAIN_TIMEOUT_S="50")  # a busy machine is slow
    received = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield FILE_HEAD
        while True:
            yield b"x"
            await asyncio.sleep(0.1)
            received.set()

    url = f"{server.url}/transcribe"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    async with httpx.AsyncClient(timeout=60) as client:
        sending = asyncio.create_task(client.post(url, content=endless(), headers=headers))
        await received.wait()
        async with lines_of(server, 40) as answer:
            following = answer.aiter_lines()
            lines = [json.loads(await anext(following))]
            began_s = time.monotonic()
            ending = asyncio.create_task(asyncio.to_thread(server.terminate))
            lines += [json.loads(line) async for line in following]
        assert await ending == 0
        assert time.monotonic() - began_s < 40
        await asyncio.wait([sending])
        sending.exception()  # it may have been cut off before its answer was read
    assert check_notes(lines) == PITCHES
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("done", "stop")
    assert "Traceback" not in server.log
    assert "gave up" not in server.log


TYPE = (b"content-type", b"multipart/form-data; boundary=x")


async def ask(
    client: TestClient, body: bytes, more: bool, trickle_s: float | None = None
) -> list[tuple[dict[str, Any], int]]:
    """The lines of the answer, each with the uploads that were under way when it was sent. more:
    the body goes on, but nothing comes of it, or a byte every `trickle_s`."""
    lines: list[tuple[dict[str, Any], int]] = []
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await (asyncio.Future() if trickle_s is None else asyncio.sleep(trickle_s))
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Message) -> None:
        for line in message.get("body", b"").splitlines():
            lines.append((json.loads(line), state_of(client).uploads.count))

    async with asyncio.timeout(60):
        await client.app(scope("http", "/transcribe", TYPE, query=b"answer=ndjson"), receive, send)
    return lines


@pytest.mark.parametrize(
    ("trickle_s", "idle_timeout_s", "detail"),
    [
        (None, 0.3, "no data for 0.3 s"),
        (0.01, 0.2, "the body arrives at less than 2 kB/s"),
    ],
)
def test_an_upload_that_stands_still_or_is_too_slow_is_given_up(
    trickle_s: float | None, idle_timeout_s: float, detail: str
) -> None:
    with serving(idle_timeout_s=idle_timeout_s) as (client, _):
        assert client.portal is not None
        ((problem, _places),) = client.portal.call(ask, client, FILE_HEAD, True, trickle_s)
        assert (problem["status"], problem["code"]) == (408, "idle_timeout")
        assert problem["detail"] == detail
        assert state_of(client).uploads.count == 0


@pytest.mark.parametrize(
    ("answer", "reads"), [(b"midi", True), (b"ndjson", True), (b"ndjson", False)]
)
def test_an_upload_whose_client_leaves_or_does_not_read_is_counted(
    answer: bytes, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "SEND_TIMEOUT_S", LONG_TIMEOUT_S if reads else 0.1)
    body = FILE_HEAD + flac(300) + b"\r\n--x--\r\n"
    messages: list[Message] = [{"type": "http.request", "body": body}]

    with serving() as (client, _):
        assert client.portal is not None
        heard = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            if answer == b"ndjson":
                await heard.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if not reads:
                await asyncio.Future()
            if b'"progress"' in message.get("body", b""):
                heard.set()

        upload = scope("http", "/transcribe", TYPE, query=b"block_frames=1&answer=" + answer)
        client.portal.call(client.app, upload, receive, send)
        numbers = client.get("/metrics").text
        assert 'rse_uploads_ended_total{outcome="vanished"} 1.0' in numbers
        if heard.is_set():
            assert 'rse_audio_seconds_total{way="file"} 0.0' not in numbers
        assert state_of(client).uploads.count == 0


def test_the_last_line_finds_the_place_given_back() -> None:
    """A client that may have one upload at a time sends the next when it has read this one."""
    with serving() as (client, _):
        assert client.portal is not None
        body = FILE_HEAD + sound_file(kind="FLAC") + b"\r\n--x--\r\n"
        lines = client.portal.call(ask, client, body, False)
    places = {line["type"]: count for line, count in lines}
    assert (places["progress"], places["note_on"], places["done"]) == (1, 1, 0)
