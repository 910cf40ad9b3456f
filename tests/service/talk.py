"""Sessions with a server in a separate process."""

import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.service.apps import PITCHES, START, check_notes, chunks, melody, midi_pitches, pcm16
from tests.service.servers import RunningServer

AUDIO = pcm16(melody())
HANDSHAKE = (
    b"GET /ws/transcribe HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
"""Request that opens a websocket, for clients that then break its rules."""


class ServerSession:
    """Session with a server; records all its messages."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.messages: list[dict[str, Any]] = []

    async def start(self, **fields: Any) -> None:
        await self.socket.send(json.dumps({**START, **fields}))
        await self.until("ready")

    async def play(self, audio: bytes) -> None:
        for chunk in chunks(audio):
            await self.socket.send(chunk)

    async def until(self, kind: str) -> None:
        while not self.messages or self.messages[-1]["type"] != kind:
            self.messages.append(json.loads(await self.socket.recv()))

    async def flush(self) -> None:
        await self.socket.send('{"type": "flush", "id": "a"}')
        await self.until("flushed")

    async def receive_rest(self) -> int | None:
        """Receive the remaining messages; return the close code."""
        try:
            while True:
                self.messages.append(json.loads(await self.socket.recv()))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None

    async def stop(self) -> None:
        """End the audio and assert that the complete melody was transcribed."""
        await self.socket.send('{"type": "stop"}')
        assert await self.receive_rest() == 1000
        assert check_notes(self.messages) == PITCHES
        assert midi_pitches(self.messages[-1]["midi_base64"]) == PITCHES


def connect_to(server: RunningServer, query: str = "", **options: Any) -> connect:
    return connect(server.websocket_url + query, open_timeout=60, **options)


async def check_transcription(server: RunningServer) -> None:
    """Transcribe the melody in one session and assert that all its notes are detected."""
    async with connect_to(server) as socket:
        session = ServerSession(socket)
        await session.start()
        await session.play(AUDIO)
        await session.stop()
