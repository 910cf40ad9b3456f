"""Tests of uploads that are slow, abandoned, or in progress at shutdown."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from starlette.testclient import TestClient
from starlette.types import Message

from service.upload import answer as answer_module
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
from tests.service.servers import STOP_S, TONES, StartServer

FILE_HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


@cache
def flac(seconds_of_silence: int = 0) -> bytes:
    """Return a FLAC file of the melody and silence. The silence needs almost no bytes."""
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", RATE_HZ, 1, format="FLAC", subtype="PCM_16") as file:
        file.write(melody())
        for _ in range(seconds_of_silence):
            file.write(np.zeros(RATE_HZ, np.float32))
    return buffer.getvalue()


async def test_shutdown_waits_only_for_completely_received_uploads(
    start_server: StartServer,
) -> None:
    server = start_server(*TONES, RSE_DRAIN_TIMEOUT_S=f"{STOP_S:g}")
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
        upload = client.stream("POST", f"{url}?answer=ndjson", files={"file": flac(40)})
        async with upload as response:
            remaining = response.aiter_lines()
            lines = [json.loads(await anext(remaining))]
            shutdown = asyncio.create_task(asyncio.to_thread(server.terminate))
            lines += [json.loads(line) async for line in remaining]
        assert await shutdown == 0
        await asyncio.wait([sending])
        sending.exception()  # the connection may close before the response is read
    assert check_notes(lines) == PITCHES
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("done", "stop")
    assert "Traceback" not in server.log
    assert "gave up" not in server.log


@pytest.mark.parametrize("answer", ["midi", "ndjson"])
async def test_upload_that_outlasts_the_drain_may_be_sent_again(
    start_server: StartServer, answer: str
) -> None:
    server = start_server(*TONES, RSE_DRAIN_TIMEOUT_S="1")
    async with httpx.AsyncClient(timeout=STOP_S) as client:
        files = {"file": flac(7000)}
        url = f"{server.url}/transcribe?answer={answer}"
        sending = asyncio.create_task(client.post(url, files=files))
        idle = 'rse_step_seconds_count{way="file"} 0.0'
        while idle in (await client.get(f"{server.url}/metrics")).text:
            await asyncio.sleep(0.02)
        assert await asyncio.to_thread(server.terminate) == 0
        response = await sending
    problem = json.loads(response.text.splitlines()[-1])
    assert problem["code"] == "draining"
    if answer == "ndjson":  # the status had been sent
        assert (problem["type"], problem["retryable"]) == ("error", True)
    else:
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
    assert "Traceback" not in server.log


TYPE = (b"content-type", b"multipart/form-data; boundary=x")


async def upload_lines(
    client: TestClient, body: bytes, more: bool, trickle_s: float | None = None
) -> list[tuple[dict[str, Any], int]]:
    """Return the lines of the response, each with the number of uploads in progress when it was
    sent. If `more`, the body is incomplete: no byte follows, or one every `trickle_s`."""
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
    [(None, 0.3, "no data for 0.3 s"), (0.01, 2.0, "the body arrives at less than 2 kB/s")],
)
def test_stalled_and_slow_uploads_time_out(
    trickle_s: float | None, idle_timeout_s: float, detail: str
) -> None:
    with serving(idle_timeout_s=idle_timeout_s) as client:
        assert client.portal is not None
        ((problem, _),) = client.portal.call(upload_lines, client, FILE_HEAD, True, trickle_s)
        assert (problem["status"], problem["code"]) == (408, "idle_timeout")
        assert problem["detail"] == detail
        assert state_of(client).uploads.count == 0


@pytest.mark.parametrize(
    ("form", "reads"), [(b"midi", True), (b"ndjson", True), (b"ndjson", False)]
)
def test_disconnected_or_blocked_upload_is_counted(
    form: bytes, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_module, "SEND_TIMEOUT_S", LONG_TIMEOUT_S if reads else 0.1)
    body = FILE_HEAD + flac(120) + b"\r\n--x--\r\n"
    messages: list[Message] = [{"type": "http.request", "body": body}]

    with serving() as client:
        assert client.portal is not None
        progress_sent = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            if form == b"ndjson":
                await progress_sent.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if not reads:
                await asyncio.Future()
            if b'"progress"' in message.get("body", b""):
                progress_sent.set()

        upload = scope("http", "/transcribe", TYPE, query=b"block_frames=1&answer=" + form)
        client.portal.call(client.app, upload, receive, send)
        metrics = client.get("/metrics").text
        assert 'rse_uploads_ended_total{outcome="vanished"} 1.0' in metrics
        if progress_sent.is_set():
            assert 'rse_audio_seconds_total{way="file"} 0.0' not in metrics
        assert state_of(client).uploads.count == 0


def test_upload_slot_is_free_when_done_is_sent() -> None:
    """A client that may have one upload at a time sends the next once it has received `done`."""
    with serving() as client:
        assert client.portal is not None
        body = FILE_HEAD + sound_file(kind="FLAC") + b"\r\n--x--\r\n"
        lines = client.portal.call(upload_lines, client, body, False)
    uploads = {line["type"]: count for line, count in lines}
    assert (uploads["progress"], uploads["note_on"], uploads["done"]) == (1, 1, 0)
