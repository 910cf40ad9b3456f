"""Application with the model of pure tones, and helpers that send and check its messages."""

import asyncio
import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import mido
import numpy as np
import soundfile
from fastapi import FastAPI
from numpy.typing import NDArray
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.app import create_app
from service.protocol.errors import CloseCode
from service.settings import Settings
from service.state import ServiceState
from tests.fakes import FakeTranscriber, play

RATE_HZ = 22_050
START = {"type": "start", "encoding": "pcm_s16le", "sample_rate": RATE_HZ}
# Two notes that end before the audio does, and one that is still held when it ends.
MELODY = [(69, 0.30, 0.70), (81, 0.80, 1.20), (57, 1.30, 1.80)]
DURATION_S = 1.6
PITCHES = [pitch for pitch, _, _ in MELODY]
SAMPLES = round(DURATION_S * RATE_HZ)
ADDRESS = "/ws/transcribe"
READY_TIMEOUT_S = 100.0  # long, so that tests pass on a busy machine
LONG_TIMEOUT_S = 600.0  # for clients and workers, because the machine may pause


def melody() -> NDArray[np.float32]:
    return play(MELODY, DURATION_S, RATE_HZ)


def sound_file(
    samples: NDArray[np.float32] | None = None,
    kind: str = "WAV",
    subtype: str = "PCM_16",
    rate_hz: int = RATE_HZ,
) -> bytes:
    """Return a file with these samples, or with the melody."""
    file = io.BytesIO()
    samples = melody() if samples is None else samples
    soundfile.write(file, samples, rate_hz, format=kind, subtype=subtype)
    return file.getvalue()


def pcm16(samples: NDArray[np.float32]) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def chunks(data: bytes, size: int = 4000) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


class InProcessLoader:
    """Loader that calls a function of the test, for workers that are threads."""

    def __init__(self, load: Callable[[str, str], Any]) -> None:
        self._number = len(_LOADERS)
        _LOADERS.append(load)

    def __call__(self, name: str, device: str) -> Any:
        return _LOADERS[self._number](name, device)


_LOADERS: list[Callable[[str, str], Any]] = []


def app_with(load: Callable[[str, str], Any], settings: Settings) -> FastAPI:
    """Return an application whose only worker is a thread. ``load`` returns its model."""
    return create_app(settings, load_model=InProcessLoader(load), processes=False)


class FinishWebsockets:
    """Middleware that lets a websocket's handler run to its end after the client has disconnected.
    TestClient alone would cancel the handler, which no server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.CancelScope(shield=scope["type"] == "websocket"):
            await self._app(scope, receive, send)


@contextmanager
def serving(transcriber: FakeTranscriber | None = None, **settings: Any) -> Iterator[TestClient]:
    """Yield a client of a ready application."""
    model = transcriber or FakeTranscriber()
    settings.setdefault("allowed_hosts", ("testserver",))  # the client's name for the server
    settings.setdefault("max_sessions_per_client", 100)  # all sessions come from one client
    for name in ("idle_timeout_s", "hang_timeout_s", "overload_lag_s"):
        settings.setdefault(name, LONG_TIMEOUT_S)
    app = app_with(lambda name, device: model, Settings(**settings))
    app.add_middleware(FinishWebsockets)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_for(client, "/readyz", 200)
        yield client


def wait_for(client: TestClient, path: str, status: int) -> None:
    """Wait until the path responds with this status."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while (response := client.get(path)).status_code != status:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.01)


def state_of(client: TestClient) -> ServiceState:
    """Return the state that the endpoints of the client's application share."""
    state: ServiceState = client.app.state.service  # type: ignore[attr-defined]
    return state


async def _set(event: asyncio.Event) -> None:
    event.set()


def drain(client: TestClient) -> None:
    """Start draining the service, as SIGTERM does."""
    assert client.portal is not None
    client.portal.call(_set, state_of(client).draining)


def post(client: TestClient, data: bytes, answer: str = "midi", **query: Any) -> Any:
    """Upload a file and return the response."""
    files = {"file": ("my song.wav", data)}
    return client.post("/transcribe", files=files, params={**query, "answer": answer})


def start_session(socket: WebSocketTestSession, **fields: Any) -> dict[str, Any]:
    """Start a session and return its `ready` message."""
    socket.send_json({**START, **fields})
    ready: dict[str, Any] = socket.receive_json()
    assert ready["type"] == "ready", ready
    return ready


@contextmanager
def live_session(client: TestClient, **fields: Any) -> Iterator[WebSocketTestSession]:
    """Start a session and yield its socket."""
    with client.websocket_connect(ADDRESS) as socket:
        start_session(socket, **fields)
        yield socket


def send(socket: WebSocketTestSession, pcm: bytes | None = None) -> None:
    """Send PCM, or the melody, in chunks."""
    for chunk in chunks(pcm16(melody()) if pcm is None else pcm):
        socket.send_bytes(chunk)


def receive_all(socket: WebSocketTestSession) -> tuple[list[dict[str, Any]], int]:
    """Return all remaining messages of the server, and the close code."""
    messages: list[dict[str, Any]] = []
    while True:
        event = socket.receive()
        if event["type"] == "websocket.close":
            return messages, event["code"]
        messages.append(json.loads(event["text"]))


def rejected_start(client: TestClient, **fields: Any) -> tuple[dict[str, Any], int]:
    """Start a session that is rejected. Return the error message and the close code."""
    with client.websocket_connect(ADDRESS) as socket:
        socket.send_json({**START, **fields})
        (error,), code = receive_all(socket)
    assert error["type"] == "error"
    return error, code


def stop(socket: WebSocketTestSession) -> tuple[list[dict[str, Any]], int]:
    """End the audio and return the result of ``receive_all``."""
    socket.send_json({"type": "stop"})
    return receive_all(socket)


async def converse(
    app: ASGIApp, *payloads: str | bytes, disconnects: bool = True
) -> tuple[list[dict[str, Any]], int]:
    """Send all payloads at once. Then the client disconnects (close code 1006), or stays connected
    and idle. Return the messages of the server and the close code."""
    incoming: list[Message] = [{"type": "websocket.connect"}]
    for payload in payloads:
        kind = "text" if isinstance(payload, str) else "bytes"
        incoming.append({"type": "websocket.receive", kind: payload})
    if disconnects:
        incoming.append({"type": "websocket.disconnect", "code": 1006})
    messages: list[dict[str, Any]] = []
    code = 1006

    async def receive() -> Message:
        return incoming.pop(0) if incoming else await asyncio.Future()

    async def send(message: Message) -> None:
        nonlocal code
        if message["type"] == "websocket.send":
            messages.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            code = message["code"]

    async with asyncio.timeout(60):
        await app(scope("websocket", ADDRESS), receive, send)
    return messages, code


def scope(kind: str, path: str, *headers: tuple[bytes, bytes], query: bytes = b"") -> Scope:
    """Return the scope of a connection to an application of :func:`serving`."""
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http" if kind == "http" else "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"testserver"), *headers],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
        "client": ("192.0.2.1", 1),
        "server": ("testserver", 80),
    }


def of_type(messages: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] in types]


def check_notes(messages: list[dict[str, Any]]) -> list[int]:
    """Assert that each note_on has one later note_off. Return the pitches in order."""
    sounding: dict[int, dict[str, Any]] = {}
    pitches = []
    for message in messages:
        if message["type"] == "note_on":
            assert message["note_id"] not in sounding
            sounding[message["note_id"]] = message
            pitches.append(message["pitch"])
        elif message["type"] == "note_off":
            on = sounding.pop(message["note_id"])
            assert message["pitch"] == on["pitch"]
            assert message["time_s"] >= on["time_s"]
    assert not sounding, "notes without note_off"
    return pitches


def pitches_of(midi: bytes) -> list[int]:
    file = mido.MidiFile(file=io.BytesIO(midi))
    return [m.note for track in file.tracks for m in track if m.type == "note_on" and m.velocity]


def midi_pitches(midi_base64: str) -> list[int]:
    return pitches_of(base64.b64decode(midi_base64, validate=True))


def perform(
    client: TestClient, pcm: bytes | None = None, **fields: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Send PCM, or the melody, in a session that ends normally. Return `ready` and all other
    messages."""
    with client.websocket_connect(ADDRESS) as socket:
        ready = start_session(socket, **fields)
        send(socket, pcm)
        messages, code = stop(socket)
    assert code == CloseCode.NORMAL
    return ready, messages


def transcribe_melody(client: TestClient) -> list[dict[str, Any]]:
    """Return the note messages of the melody, with ``seq`` 0, because ``seq`` also counts progress
    messages, which depend on the time."""
    _, messages = perform(client)
    assert check_notes(messages) == PITCHES
    return [{**message, "seq": 0} for message in of_type(messages, "note_on", "note_off")]
