"""The live endpoint as a function: what a client does goes in, the answers come out.

No sockets and no server between: thousands of sessions a minute.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from service.app import create_app
from service.engine.engine import Engine
from service.settings import Settings
from tests.fakes import FakeTranscriber

PATIENCE_S = 60.0


class Service:
    """An application on a model of pure tones, with an event loop of its own."""

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self.app = create_app(
            Settings(allowed_hosts=("test",), max_request_burst=10**6, **settings)
        )
        self.state = self.app.state.service
        self._engine = Engine(FakeTranscriber())
        self._engine.warm_up()
        self.state.slot.engine = self._engine

    def converse(self, *sent: str | bytes) -> tuple[list[dict[str, Any]], int]:
        """One session: everything it says, and the code of the close. A client that has sent all
        disconnects, unless it was closed before; the code is then 1006."""
        return self._runner.run(self._converse(sent))

    async def _converse(self, sent: tuple[str | bytes, ...]) -> tuple[list[dict[str, Any]], int]:
        events: list[dict[str, Any]] = [{"type": "websocket.connect"}]
        for content in sent:
            kind = "text" if isinstance(content, str) else "bytes"
            events.append({"type": "websocket.receive", kind: content})
        events.append({"type": "websocket.disconnect", "code": 1006})
        coming = iter(events)
        heard: list[dict[str, Any]] = []
        code = 1006

        async def receive() -> dict[str, Any]:
            event = next(coming, None)
            if event is None:
                await asyncio.Event().wait()
            assert event is not None
            return event

        async def send(message: Any) -> None:
            nonlocal code
            if message["type"] == "websocket.send":
                heard.append(json.loads(message["text"]))
            elif message["type"] == "websocket.close":
                code = message["code"]

        scope = {
            "type": "websocket",
            "path": "/ws/transcribe",
            "raw_path": b"/ws/transcribe",
            "query_string": b"",
            "headers": [(b"host", b"test")],
            "client": ("127.0.0.1", 1),
            "server": ("test", 80),
            "scheme": "ws",
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        async with asyncio.timeout(PATIENCE_S):
            await self.app(scope, receive, send)
        return heard, code

    def close(self) -> None:
        self._engine.close()
        self._runner.close()
