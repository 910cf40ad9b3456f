"""The live endpoint as a function: what a client does goes in, the answers come out.

No sockets and no server between: thousands of sessions a minute.
"""

import asyncio
from typing import Any

from service.app import create_app
from service.engine.engine import Engine
from service.settings import Settings
from tests.fakes import FakeTranscriber
from tests.service.apps import converse


class Service:
    """An application on a model of pure tones, with an event loop of its own."""

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self.app = create_app(
            Settings(allowed_hosts=("testserver",), max_request_burst=10**6, **settings)
        )
        self.state = self.app.state.service
        self._engine = Engine(FakeTranscriber())
        self._engine.warm_up()
        self.state.slot.engine = self._engine

    def converse(self, *sent: str | bytes) -> tuple[list[dict[str, Any]], int]:
        """One session: everything it says, and the code of the close."""
        return self._runner.run(converse(self.app, *sent))

    def close(self) -> None:
        self._engine.close()
        self._runner.close()
