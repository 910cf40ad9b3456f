"""`python -m tests.service.serve_fake PORT [HEADS]`: the real service, with a model of no weights.

HEADS is `notes`, `all` for those of instruments and the pedal too, or `none`: nothing is heard, at
no cost.

`rse_tasks` at /metrics counts the tasks of the event loop.
"""

import asyncio
import sys
from typing import NoReturn

import torch
from torch import Tensor

from model.config import FRAMES, HEADS, PITCHES
from service.__main__ import leave
from service.app import create_app
from service.ops import logs
from service.server import DrainingServer, server_config
from service.settings import Settings
from tests.fakes import FakeStream, FakeTranscriber


class NullStream(FakeStream):
    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        return torch.zeros(1)


class NullTranscriber(FakeTranscriber):
    def open_stream(self) -> FakeStream:
        return NullStream(self._kernels)

    def predict_features(self, features: Tensor) -> Tensor:
        return torch.zeros(1).expand(len(features), len(self.config.heads), FRAMES, PITCHES)


def main(port: int, heads: str = "notes") -> NoReturn:
    known = HEADS if heads == "all" else HEADS[:3]
    model = NullTranscriber() if heads == "none" else FakeTranscriber(known)
    settings = Settings(port=port, device="cpu")
    logs.configure(settings.log_format)
    app = create_app(settings, load_model=lambda name, device: model)
    state = app.state.service
    state.metrics.watch("tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks()))
    server = DrainingServer(server_config(app, settings), state)
    asyncio.run(server.serve())
    leave(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
