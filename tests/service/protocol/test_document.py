"""Tests that PROTOCOL.md describes every message, field and error, and that its examples work."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import service
from model.storage import load
from service.protocol.checkpoint import Checkpoint
from service.protocol.client_messages import ClientMessage, Start, parse_message
from service.protocol.errors import ErrorCode
from service.protocol.server_messages import ServerMessage
from tests.service.apps import ADDRESS, MELODY, serving, sound_file
from tests.service.servers import RunningServer

DOCUMENT = (Path(service.__path__[0]) / "PROTOCOL.md").read_text(encoding="utf-8")
CLIENT, SERVER, REST = re.split(r"(?s)(## Receive.*?)(?=### Instruments)", DOCUMENT)
RESUME = REST[REST.index("## Resume") : REST.index("## HTTP")]


def description(message: type[BaseModel]) -> str:
    """Return the description of a message: its example and table, or its row and list."""
    kind = message.model_fields["type"].default
    if message in get_args(ClientMessage):
        (text,) = re.findall(rf'(?s)`\{{"type": "{kind}".*?\}}`(?:\n\n(?:\|[^\n]*\n)+)?', CLIENT)
        return str(text)
    (row,) = re.findall(rf"(?m)^\| `{kind}` \|.*", SERVER)
    return "".join([row, *re.findall(rf"(?ms)^`{kind}` has.*?(?=\n\n(?!-))", SERVER)])


def undescribed(model: type[BaseModel], text: str) -> set[str]:
    """Return the fields that a text does not name. Checkpoints are described under Resume."""
    names = model.model_fields.keys() - {"type", "seq"} - set(re.findall(r"[`\"](\w+)[`\"]", text))
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names |= undescribed(part, RESUME if issubclass(part, Checkpoint) else text)
    return names


@pytest.mark.parametrize("message", get_args(ClientMessage) + get_args(ServerMessage))
def test_document_describes_every_message_with_its_fields(message: type[BaseModel]) -> None:
    assert not undescribed(message, description(message))


@pytest.mark.parametrize("code", ErrorCode)
def test_document_states_every_error_with_its_numbers(code: ErrorCode) -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("|") and f"`{code}`" in line]
    assert code.close_code or code.status
    for number in filter(None, (code.close_code, code.status)):
        assert any(f"| {number} |" in row for row in rows), rows
    assert code.retryable or not any("Retry-After" in row for row in rows), rows


def example(kind: str) -> dict[str, Any]:
    """Return the example message of a type, without the fields that ``...`` abridges."""
    start = re.search(rf'\{{("seq":\d+,)?"type":"{kind}",', DOCUMENT)
    assert start is not None
    text = re.sub(r",?\.\.\.(?=\})", "", DOCUMENT[start.start() :])
    message: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return message


def test_ready_example_matches_the_shipped_weights() -> None:
    weights: Any = load("live")
    with (
        serving(weights, max_sessions=1) as client,
        client.websocket_connect(f"{ADDRESS}?encoding=pcm_s16le&sample_rate=48000") as socket,
    ):
        ready = socket.receive_json()
    documented = example("ready")
    assert ready.keys() == documented.keys()
    assert ready["checkpoint"].keys() == documented["checkpoint"].keys()
    assert documented["instruments"].items() <= ready["instruments"].items()
    for abridged in ("session_id", "instruments", "limits"):
        del ready[abridged], documented[abridged]
    del ready["checkpoint"]["session_id"], documented["checkpoint"]["session_id"]
    assert ready == documented


async def test_first_example_prints_the_notes(server: RunningServer, tmp_path: Path) -> None:
    script = DOCUMENT.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "client.py").write_text(script)
    (tmp_path / "melody.wav").write_bytes(sound_file())
    arguments = ("client.py", "melody.wav", f"ws://127.0.0.1:{server.port}")
    client = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await client.communicate()
    pitches = [line.rpartition(" ")[2] for line in printed.decode().splitlines()]
    assert pitches == [str(pitch) for pitch, _, _ in MELODY]
    assert client.returncode == 0


def test_resume_example_is_valid_and_complete() -> None:
    start = example("start")
    resume = start["resume"]
    assert resume.keys() == Checkpoint.model_fields.keys()
    resume["session_id"] = "9f0c"
    parsed = parse_message(json.dumps(start))
    assert isinstance(parsed, Start)
    assert parsed.resume is not None
    assert parsed.resume.model_dump(mode="json") == resume  # also the fields of its parts
