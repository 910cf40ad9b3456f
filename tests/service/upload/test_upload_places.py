"""An upload holds its place no longer than its client is there and goes on."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import soundfile
from starlette.types import ASGIApp, Message, Scope

from service.access.places import Places
from tests.service.apps import RATE_HZ, melody, serving

BOUNDARY = "part"
PATIENCE_S = 60.0


def form() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, melody(), RATE_HZ, format="FLAC")
    head = 'Content-Disposition: form-data; name="file"; filename="a.flac"'
    return (
        f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode()
        + file.getvalue()
        + (f"\r\n--{BOUNDARY}--\r\n".encode())
    )


SCOPE: Scope = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/transcribe",
    "raw_path": b"/transcribe",
    "query_string": b"",
    "root_path": "",
    "headers": [
        (b"host", b"testserver"),
        (b"content-type", f"multipart/form-data; boundary={BOUNDARY}".encode()),
    ],
    "client": ("192.0.2.1", 1),
    "server": ("testserver", 80),
}


async def ask(app: ASGIApp, messages: list[Message], last: asyncio.Future[Message]) -> Any:
    """The application's answer to these messages; `last` is what comes after them, some time."""
    answer: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else await asyncio.shield(last)

    async def send(message: Message) -> None:
        answer.append(message)

    async with asyncio.timeout(PATIENCE_S):
        await app({**SCOPE}, receive, send)
    body = b"".join(message.get("body", b"") for message in answer)
    return answer[0]["status"], json.loads(body)["code"]


def test_an_upload_that_stands_still_is_given_up() -> None:
    async def stall(app: ASGIApp) -> Any:
        first = {"type": "http.request", "body": form()[:200], "more_body": True}
        return await ask(app, [first], asyncio.get_running_loop().create_future())

    with serving(idle_timeout_s=0.1, progress_interval_ms=20) as (client, _):
        assert client.portal is not None
        assert client.portal.call(stall, client.app) == (408, "idle_timeout")
        assert client.app.state.service.uploads.count == 0  # type: ignore[attr-defined]


def test_the_last_line_finds_the_place_given_back() -> None:
    """A client that may have one upload at a time sends the next when it has read this one."""

    async def taken(app: ASGIApp, uploads: Places) -> dict[str, int]:
        """Places that are taken, by the type of the line that is sent."""
        places: dict[str, int] = {}
        messages: list[Message] = [{"type": "http.request", "body": form(), "more_body": False}]

        async def receive() -> Message:
            return messages.pop(0) if messages else await asyncio.Future()

        async def send(message: Message) -> None:
            for line in message.get("body", b"").splitlines():
                places[json.loads(line)["type"]] = uploads.count

        async with asyncio.timeout(PATIENCE_S):
            await app({**SCOPE, "query_string": b"answer=ndjson"}, receive, send)
        return places

    with serving() as (client, _):
        assert client.portal is not None
        uploads: Places = client.app.state.service.uploads  # type: ignore[attr-defined]
        places = client.portal.call(taken, client.app, uploads)
    assert (places["progress"], places["note_on"], places["done"]) == (1, 1, 0)
