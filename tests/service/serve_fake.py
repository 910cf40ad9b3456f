"""`python -m tests.service.serve_fake PORT [HEADS]`: the real service with a model without weights.

HEADS is `notes`, `all` (with instruments and the pedal), `none` (the model detects nothing, at no
cost) or `chords` (it detects a chord twice a second in any audio, at almost no cost).

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


class ChordStream(FakeStream):
    """Stream whose features are the number of hops received so far."""

    hops = 0

    def advance(self, window: Tensor, new_hops: int, shift: int = 0) -> Tensor:
        self.hops += new_hops
        return torch.tensor([self.hops])


class ChordTranscriber(FakeTranscriber):
    """Model that detects a chord twice a second in any audio, at almost no cost."""

    PERIOD, SOUNDING = 43, 32  # frames
    CHORD = (60, 64, 67)

    def __init__(self) -> None:
        super().__init__(HEADS[:3])
        frame = torch.arange(FRAMES) + torch.arange(self.PERIOD)[:, None]  # [phase, FRAMES]
        phase = frame % self.PERIOD
        rows = {"frame": phase < self.SOUNDING, "onset": phase == 0, "velocity": phase == 0}
        shape = self.PERIOD, len(self.config.heads), FRAMES, PITCHES
        self._by_phase = torch.zeros(shape)
        for number, head in enumerate(self.config.heads):
            self._by_phase[:, number, :, self.CHORD] = 0.9 * rows[head][..., None]

    def open_stream(self) -> FakeStream:
        return ChordStream(self._kernels)

    def predict_features(self, features: Tensor) -> Tensor:
        return self._by_phase[features[:, 0] % self.PERIOD]


def load(heads: str, device: str) -> FakeTranscriber:
    """Return the model. Called in the workers."""
    known = HEADS if heads == "all" else HEADS[:3]
    if heads == "chords":
        return ChordTranscriber()
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
    # Workers import `load` by its module's name, which must not be `__main__`.
    from tests.service import serve_fake

    serve_fake.main(int(sys.argv[1]), *sys.argv[2:])
