"""How much a worker can do."""

import time

import numpy as np

from model.config import ModelConfig
from service.engine.runners import Runner, compute
from service.notes.tracker_settings import TrackerSettings
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.stream.stream import Stream

_RATE_HZ = 48_000
_CHUNK_S = 0.1
_STREAMS = 2
_LEVEL = 0.05  # of the noise


def windows_per_s(
    runner: Runner, config: ModelConfig, settings: TrackerSettings, seconds: float
) -> float:
    """Windows per second of default streams that come as fast as they are taken."""
    audio = AudioFormat(encoding=Encoding.PCM_S16LE, sample_rate_hz=_RATE_HZ)
    noise = np.random.default_rng(0).standard_normal(int(_RATE_HZ * _CHUNK_S))
    chunk = (32767 * _LEVEL * noise).astype("<i2").tobytes()
    streams = [Stream(config, settings, audio, StreamOptions()) for _ in range(_STREAMS)]
    features = [runner.open_stream(stream.positions) for stream in streams]
    windows, began_s = 0, time.monotonic()
    while time.monotonic() < began_s + seconds:
        for stream, state in zip(streams, features, strict=True):
            stream.feed(chunk)
            while (due := stream.take(1)) is not None:
                stream.hear(compute(runner, state, due))
                windows += 1
    return windows / (time.monotonic() - began_s)
