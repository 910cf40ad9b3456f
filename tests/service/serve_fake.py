"""`python -m tests.service.serve_fake PORT [HEADS]`: the real service with a model without weights.

HEADS is `notes`, or `all` (with instruments and the pedal), or `none`: the model detects nothing,
at no cost.

`rse_tasks` at /metrics counts the tasks of the event loop.
"""

import asyncio
import sys

import torch
from torch import Tensor

from model.config import FRAMES, HEADS, PITCHES
from service.app import create_app
from service.live import websocket
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


def load(heads: str, device: str) -> FakeTranscriber:
    """Return the model. Called in the workers."""
    known = HEADS if heads == "all" else HEADS[:3]
    return NullTranscriber() if heads == "none" else FakeTranscriber(known)


def main(port: int, heads: str = "notes") -> None:
    settings = Settings(port=port, device="cpu", model=heads)
    logs.configure(settings.log_format)
    websocket.SEND_TIMEOUT_S = 3.0  # tests wait for this timeout
    app = create_app(settings, load_model=load)
    state = app.state.service
    state.metrics.watch("tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks()))
    server = DrainingServer(server_config(app, settings), state)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())


if __name__ == "__main__":
    # Workers import what they load by its name.
    from tests.service import serve_fake

    serve_fake.main(int(sys.argv[1]), *sys.argv[2:])
