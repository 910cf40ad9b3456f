"""Uploads to the service as a process: long recordings, clients that leave, too big bodies."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import soundfile

from tests.service.apps import PITCHES, RATE_HZ, check_notes, melody
from tests.service.conftest import TONES, RunningServer, StartServer
from tests.service.faults.held import wait_until

FILE_HEAD = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


def flac(seconds_of_silence: int = 0) -> bytes:
    """The melody and then silence, which takes next to no bytes."""
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", RATE_HZ, 1, format="FLAC", subtype="PCM_16") as file:
        file.write(melody())
        for _ in range(seconds_of_silence):
            file.write(np.zeros(RATE_HZ, np.float32))
    return buffer.getvalue()


async def place_is_free(server: RunningServer) -> None:
    """Waits until an upload finds a place again."""
    await wait_until(lambda: httpx.post(f"{server.url}/transcribe", timeout=60).status_code == 400)


@contextlib.asynccontextmanager
async def lines_of(server: RunningServer, seconds: int) -> AsyncIterator[httpx.Response]:
    """The answer to an upload as it comes."""
    how: dict[str, Any] = {"files": {"file": flac(seconds)}, "params": {"answer": "ndjson"}}
    async with httpx.AsyncClient(timeout=60) as client:
        async with client.stream("POST", f"{server.url}/transcribe", **how) as answer:
            yield answer


async def leave(url: str, body: AsyncIterator[bytes] | bytes) -> None:
    """Sends (a part of) an upload and is gone a second later, or with the first line."""
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1), httpx.AsyncClient(timeout=60) as client:
            async with client.stream("POST", url, content=body, headers=headers) as answer:
                assert answer.status_code == 200
                await anext(answer.aiter_lines())


async def test_clients_that_leave_free_their_places(start_server: StartServer) -> None:
    server = start_server(*TONES, RSE_MAX_UPLOADS="1", RSE_IDLE_TIMEOUT_S="600")
    url = f"{server.url}/transcribe"

    async def half_a_body() -> AsyncIterator[bytes]:
        yield FILE_HEAD + bytes(10_000)
        await asyncio.sleep(60)

    # An hour in this mode takes far longer than the test waits for the place.
    hour = FILE_HEAD + flac(3600) + b"\r\n--x--\r\n"
    for answer in ("midi", "ndjson"):
        await leave(f"{url}?mode=centre&answer={answer}", hour)
        await place_is_free(server)
    await leave(url, half_a_body())
    await place_is_free(server)
    async with lines_of(server, 0) as whole:
        assert whole.status_code == 200
    assert "Traceback" not in server.log


async def test_an_upload_under_way_is_finished_before_the_end(start_server: StartServer) -> None:
    server = start_server(*TONES, RSE_DRAIN_TIMEOUT_S="50")  # of a machine that does much else
    async with lines_of(server, 40) as answer:
        lines = []
        ending: asyncio.Task[int] | None = None
        async for line in answer.aiter_lines():
            lines.append(json.loads(line))
            if ending is None:
                ending = asyncio.create_task(asyncio.to_thread(server.terminate))
    assert check_notes(lines) == PITCHES
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("done", "stop")
    assert ending is not None
    assert await ending == 0
