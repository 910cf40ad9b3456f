"""Connections that send too much, too little, or read nothing."""

import asyncio
import base64
import contextlib
import socket
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from service.ops.connections import PIECE_BYTES, LiveConnection
from service.settings import Settings
from tests.service.faults.held import wait_until
from tests.service.servers import TONES, RunningServer, StartServer, answers

HANDSHAKE = (
    b"GET /ws/transcribe HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
OPENING, CONTINUATION, PING = (bytes([kind, 0x80, 0, 0, 0, 0]) for kind in (2, 0, 0x89))
PONG = b"\x8a\0"


class Wire(asyncio.Transport):
    """A transport whose other end the test is."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.aborted = True, False
        self.unsent = b""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: Any) -> None:
        self.unsent += data

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


async def connected(closed: bool = False, **settings: Any) -> tuple[LiveConnection, Wire]:
    """An accepted socket, which the application may close at once, but never reads."""
    done = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        if closed:
            await send({"type": "websocket.close"})
        done.set()
        await asyncio.Future()

    config = uvicorn.Config(application, ws_per_message_deflate=False, log_config=None)
    config.load()
    connection = LiveConnection(config, ServerState(), {}, settings=Settings(**settings))
    wire = Wire()
    connection.connection_made(wire)
    connection.data_received(HANDSHAKE)
    await done.wait()
    wire.unsent = b""
    return connection, wire


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The frames parsed at each turn."""
    counts: list[int] = []
    whole = LiveConnection.handle_events

    def handle_events(self: LiveConnection) -> None:
        counts.append(len(self.conn.events))
        whole(self)

    monkeypatch.setattr(LiveConnection, "handle_events", handle_events)
    return counts


@pytest.mark.parametrize("frame", [CONTINUATION, PING])
async def test_a_flood_of_frames_is_parsed_in_turns(frame: bytes, parsed: list[int]) -> None:
    connection, wire = await connected(max_messages_per_s=1_000_000)
    parsed.clear()
    connection.data_received(OPENING + 40_000 * frame)
    assert sum(parsed) < 40_000
    assert not wire.reading
    while not wire.reading:
        await asyncio.sleep(0)
    assert sum(parsed) == 40_001
    assert max(parsed) <= PIECE_BYTES / len(frame) + 1


@pytest.mark.parametrize("closed", [False, True])
async def test_frames_count_against_the_messages_per_second(
    closed: bool, parsed: list[int]
) -> None:
    connection, wire = await connected(closed, max_messages_per_s=1000)
    connection.close_timeout = 600.0
    parsed.clear()
    connection.data_received(OPENING + 40_000 * CONTINUATION)
    once = sum(parsed)
    await wait_until(lambda: closed or sum(parsed) > once)
    await asyncio.sleep(0.1)
    assert sum(parsed) < (2_000 if closed else 40_000)
    assert not wire.reading


async def test_only_the_newest_ping_is_answered_once_the_client_reads_again() -> None:
    connection, wire = await connected(send_timeout_s=600)
    connection.data_received(2 * PING)
    assert wire.unsent == 2 * PONG
    connection.pause_writing()
    for _ in range(100):
        connection.data_received(PING)
    assert wire.unsent == 2 * PONG
    connection.resume_writing()
    assert wire.unsent == 3 * PONG


async def test_a_client_that_pings_and_reads_nothing_is_dropped() -> None:
    connection, wire = await connected(send_timeout_s=0.1)
    connection.data_received(PING)
    connection.pause_writing()
    connection.data_received(PING)
    await wait_until(lambda: wire.aborted)


# -- a server of its own ---------------------------------------------------------------------------


def join(stack: ExitStack, server: RunningServer, *sent: bytes) -> socket.socket:
    """A connection that has sent this, for as long as the stack lives."""
    there = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    with contextlib.suppress(OSError):  # it may be cut off while it sends
        for data in sent:
            there.sendall(data)
    return there


def heard(there: socket.socket, until: bytes | None = None) -> bytes:
    """What the server says up to these words, or until it closes the connection, which it must
    within a minute."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while (until is None or until not in said) and (data := there.recv(4096)):
            said += data
    return said


def test_connections_without_a_request_are_closed(start_server: StartServer) -> None:
    server = start_server(*TONES, RSE_IDLE_TIMEOUT_S="0.5")
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    refused = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    with ExitStack() as stack:
        heads = [(), (whole[:-2],), (whole, whole[:-2]), (refused,)]
        heads.append((whole[:-2], 10**5 * b"a: b\r\n"))
        for there in [join(stack, server, *head) for head in heads]:
            heard(there)
        there = join(
            stack, server, refused.replace(b"Content-Length: 9", b"Transfer-Encoding: chunked")
        )
        assert b"405" in heard(there, until=b"\r\n\r\n")
        with contextlib.suppress(OSError):  # a slow machine may have been cut off by now
            there.sendall(b"no chunk\r\n")
        heard(there)
        # A websocket has begun in time, and its session has an end of its own.
        assert b"idle_timeout" in heard(join(stack, server, HANDSHAKE))
    assert "Traceback" not in server.log


async def test_connections_above_the_limit_are_refused_and_logged(
    start_server: StartServer,
) -> None:
    server = start_server(*TONES, RSE_MAX_CONNECTIONS="10", RSE_MAX_SESSIONS="4")
    with ExitStack() as stack:
        for _ in range(30):
            last = join(stack, server)
        assert heard(last) == b""
        assert "RSE_MAX_CONNECTIONS=10" in server.log
    await wait_until(lambda: answers(f"{server.url}/healthz"))
