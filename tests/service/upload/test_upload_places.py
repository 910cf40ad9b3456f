"""An upload holds its place no longer than its client is there and goes on."""

import asyncio
import json
from typing import Any

from starlette.testclient import TestClient
from starlette.types import Message

from tests.service.apps import scope, serving, sound_file, state_of
from tests.service.upload.test_real_uploads import FILE_HEAD

TYPE = (b"content-type", b"multipart/form-data; boundary=x")


async def ask(client: TestClient, body: bytes, more: bool) -> list[tuple[dict[str, Any], int]]:
    """The lines of the answer, each with the uploads that were under way when it was sent.

    more: the body goes on, but nothing comes of it.
    """
    lines: list[tuple[dict[str, Any], int]] = []
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": more}]

    async def receive() -> Message:
        return messages.pop(0) if messages else await asyncio.Future()

    async def send(message: Message) -> None:
        for line in message.get("body", b"").splitlines():
            lines.append((json.loads(line), state_of(client).uploads.count))

    async with asyncio.timeout(60):
        await client.app(scope("http", "/transcribe", TYPE, query=b"answer=ndjson"), receive, send)
    return lines


def test_an_upload_that_stands_still_is_given_up() -> None:
    with serving(idle_timeout_s=0.1) as (client, _):
        assert client.portal is not None
        ((problem, _places),) = client.portal.call(ask, client, FILE_HEAD + bytes(100), True)
        assert (problem["status"], problem["code"]) == (408, "idle_timeout")
        assert state_of(client).uploads.count == 0


def test_the_last_line_finds_the_place_given_back() -> None:
    """A client that may have one upload at a time sends the next when it has read this one."""
    with serving() as (client, _):
        assert client.portal is not None
        body = FILE_HEAD + sound_file(kind="FLAC") + b"\r\n--x--\r\n"
        lines = client.portal.call(ask, client, body, False)
    places = {line["type"]: count for line, count in lines}
    assert (places["progress"], places["note_on"], places["done"]) == (1, 1, 0)
