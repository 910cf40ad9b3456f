"""`python -m tests.service.serve_fake PORT`: the real service, with a model of no weights."""

from __future__ import annotations

import asyncio
import sys

from service.app import create_app
from service.server import DrainingServer, server_config
from service.settings import Settings
from tests.fakes import FakeTranscriber


def main(port: int) -> None:
    settings = Settings(port=port, device="cpu")
    app = create_app(settings, load_model=lambda name, device: FakeTranscriber())
    server = DrainingServer(server_config(app, settings), app.state.service)
    asyncio.run(server.serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
