"""Tests of received websocket messages: idle time, memory, pings and files instead of PCM."""

import asyncio
import contextlib

import pytest
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from service import server
from service.live import session
from service.live.session import Message, Receiver
from service.server import OVERHEAD_BYTES, MessageQueue, SocketConnection, server_config
from service.settings import Settings
from tests.service.apps import live_session, of_type, receive_all
from tests.service.talk import HANDSHAKE


async def test_pauses_do_not_count_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(session, "monotonic", lambda: now_s)

    async def receive() -> Message:
        return {"type": "websocket.receive", "text": "keepalive"}

    async def wait() -> None:
        nonlocal now_s
        assert (messages.idle_s, messages.without_audio_s) == (0, 0)
        now_s = 14.0

    messages = Receiver(receive)
    now_s = 1.0
    await messages.next()
    now_s = 4.0
    assert (messages.idle_s, messages.without_audio_s) == (3, 4)
    await messages.pause(wait())
    now_s = 15.0
    assert (messages.idle_s, messages.without_audio_s) == (1, 5)


def test_queue_measures_the_messages_that_wait() -> None:
    queue = MessageQueue()
    for number in range(3):
        queue.put_nowait({"type": "websocket.receive", "bytes": bytes(number)})
    queue.put_nowait({"type": "websocket.receive", "text": "keepalive"})
    assert queue.size == 4 * OVERHEAD_BYTES + 3 + 9
    for _ in range(4):
        queue.get_nowait()
    assert queue.size == 0


async def test_pings_are_not_read_while_their_pongs_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_FRAMES_PER_S", 1_000_000)
    app, connections = FastAPI(), list[SocketConnection]()

    @app.websocket("/ws/transcribe")
    async def receive_one(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.receive()

    def connect() -> SocketConnection:
        config = server_config(app, Settings())
        config.load()
        connections.append(SocketConnection(config, ServerState(), {}))
        return connections[0]

    loop = asyncio.get_running_loop()
    async with await loop.create_server(connect, "127.0.0.1", 0) as listener, asyncio.timeout(100):
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        pings = 1000 * (b"\x89\xfd\0\0\0\0" + bytes(125))
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 32_000_000:
                writer.write(pings)
                sent += len(pings)
                async with asyncio.timeout(2):
                    await writer.drain()
        assert connections[0].transport.get_write_buffer_size() < 200_000
        # The client reads, so the server reads on, up to the close frame.
        writer.write(b"\x88\x80\0\0\0\0")
        pongs = await reader.read(-1)
        assert len(pongs) == sent // 131 * 127 + 2
        writer.close()


@pytest.mark.parametrize("chunks", [(b"", b"fLaC"), (b"Og", b"gS"), (bytes(4), b"f", b"typ")])
def test_file_is_rejected_however_it_is_split(
    client: TestClient, chunks: tuple[bytes, ...]
) -> None:
    with live_session(client) as socket:
        for chunk in chunks:
            socket.send_bytes(chunk)
        socket.send_json({"type": "stop"})
        messages, _ = receive_all(socket)
    assert [error["code"] for error in of_type(messages, "error")] == ["bad_audio"]
