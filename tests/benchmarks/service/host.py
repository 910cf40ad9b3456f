"""What a live stream costs a processor beside the model: sockets, messages, resampling, notes.

The real service with a model that computes nothing and hears nothing. On a GPU this is what is left
for the processor, and one process does most of it on one core.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.config import FRAMES, PITCHES
from service.app import create_app
from service.ops.server import DrainingServer, server_config
from service.settings import Settings
from tests.benchmarks import load
from tests.benchmarks.machine import cpu_s, spread, write_music
from tests.fakes import FakeStream, FakeTranscriber
from tests.service.conftest import server_starter

STREAMS = 16


class NullStream(FakeStream):
    """No front-end."""

    def advance(self, window: Tensor, new_hops: int) -> Tensor:
        return torch.zeros(1)


class NullTranscriber(FakeTranscriber):
    """No network: silence, at no cost."""

    def open_stream(self) -> FakeStream:
        return NullStream(self._kernels)

    def predict_features(self, features: Tensor) -> Tensor:
        return torch.zeros(1).expand(len(features), len(self.config.heads), FRAMES, PITCHES)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Processor time a stream takes, in thousandths of a core."""
    seconds, runs = (10.0, 2) if options.quick else (30.0, 5)
    with tempfile.TemporaryDirectory() as folder, server_starter(Path(folder)) as start:
        music = Path(folder, "music.wav")
        write_music(music, seconds, options.audio)
        server = start(
            *("tests.benchmarks.service.host", "{port}"),
            RSE_MAX_SESSIONS=str(STREAMS),
            RSE_MAX_SESSIONS_PER_CLIENT=str(STREAMS),
        )
        used = []
        for _ in range(runs):
            before_s = cpu_s(server.process.pid)
            trial = load.measure(server, music, STREAMS, seconds)
            assert not trial["refused"], trial["refusals"]
            used.append(1000 * (cpu_s(server.process.pid) - before_s) / (STREAMS * seconds))
        server.terminate()
    return {"streams": STREAMS, "core_ms_a_stream_second": spread(used)}


def main(port: int) -> None:
    """The server process: ``python -m tests.benchmarks.service.host PORT``."""
    settings = Settings(port=port, device="cpu")
    app = create_app(settings, load_model=lambda name, device: NullTranscriber())
    asyncio.run(DrainingServer(server_config(app, settings), app.state.service).serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
