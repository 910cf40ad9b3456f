"""`python -m tests.service.serve_fake PORT [HEADS]`: the real service, with a model of no weights.

HEADS is `notes`, or `all` for those of instruments and the pedal too.

Tones louder than any music make its model fail: `RAISING` the batch that they are in, `HANGING`
the worker for good. `rse_tasks` at /metrics counts the tasks of the event loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import NoReturn

from torch import Tensor

from model.config import HEADS
from service.__main__ import leave
from service.app import create_app
from service.ops.server import DrainingServer, server_config
from service.settings import Settings
from tests.fakes import FakeTranscriber

RAISING = 4.0  # amplitudes of a tone; full scale is 1
HANGING = 40.0


class FaultyTranscriber(FakeTranscriber):
    """Hears tones, and fails on loud ones."""

    def predict_features(self, features: Tensor) -> Tensor:
        level = float(features.max())
        if level > HANGING / 2:
            threading.Event().wait()
        if level > RAISING / 2:
            raise RuntimeError("failing batch")
        return super().predict_features(features)


def main(port: int, heads: str = "notes") -> NoReturn:
    told = HEADS if heads == "all" else HEADS[:3]
    settings = Settings(port=port, device="cpu")
    app = create_app(settings, load_model=lambda name, device: FaultyTranscriber(told))
    state = app.state.service
    state.metrics.watch("tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks()))
    server = DrainingServer(server_config(app, settings), state)
    asyncio.run(server.serve())
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
