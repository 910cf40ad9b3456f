"""Audio that no microphone gives, through the shipped model: every number stays finite."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from model import storage
from model.config import WINDOW
from service.audio.pcm import MAX_AMPLITUDE
from service.engine.engine import Engine, Priority
from service.notes.events import Event
from service.protocol.options import AudioFormat, Encoding, StreamOptions
from service.session.session import TranscriptionSession
from tests.fakes import FakeTranscriber

RATE_HZ = 44_100
AUDIO = AudioFormat(encoding=Encoding.PCM_F32LE, sample_rate_hz=RATE_HZ)
TIME_S = np.arange(2 * RATE_HZ) / RATE_HZ


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(storage.load("live", "cpu")) as engine:
        engine.warm_up()
        yield engine


def square(hz: float) -> NDArray[np.float32]:
    return np.where(np.sin(2 * np.pi * hz * TIME_S) >= 0, 1.0, -1.0).astype(np.float32)


def check(events: list[Event]) -> None:
    """One end for each note, not before its beginning; all numbers are some."""
    ons = {event.note_id: event for event in events if event.kind == "note_on"}
    offs = {event.note_id: event for event in events if event.kind == "note_off"}
    assert ons.keys() == offs.keys()
    assert len([e for e in events if e.kind in ("note_on", "note_off")]) == 2 * len(ons)
    for note_id, on in ons.items():
        assert math.isfinite(on.confidence)
        assert 1 <= on.velocity <= 127
        assert 0 <= on.time_s <= offs[note_id].time_s <= len(TIME_S) / RATE_HZ + 0.1


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(square(440), id="square"),
        pytest.param(square(RATE_HZ / 2), id="square at the Nyquist frequency"),
        pytest.param(MAX_AMPLITUDE * square(110), id="the loudest that is taken"),
        pytest.param(np.ones(len(TIME_S), np.float32), id="direct current"),
        pytest.param(np.full(len(TIME_S), 1e-40, np.float32), id="denormal numbers"),
        pytest.param(np.zeros(len(TIME_S), np.float32), id="digital silence"),
        pytest.param(np.eye(1, len(TIME_S), RATE_HZ, dtype=np.float32)[0], id="one click"),
    ],
)
async def test_hard_audio_gives_finite_frames_and_ended_notes(
    engine: Engine, samples: NDArray[np.float32]
) -> None:
    frames: list[NDArray[np.float32]] = []
    session = TranscriptionSession(
        engine, AUDIO, StreamOptions(), on_frames=lambda first, block: frames.append(block)
    )
    events = await session.push(samples.astype("<f4").tobytes())
    events += await session.finish()
    probabilities = np.concatenate(frames, axis=1)
    assert np.isfinite(probabilities).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
    assert session.totals.received_samples == len(samples)
    check(events)


class Denormal(FakeTranscriber):
    """Keeps what a worker makes of a number too small for the hardware's fast path."""

    result = math.nan

    def predict_features(self, features: Tensor) -> Tensor:
        self.result = float((torch.full((8,), 1e-30) * 1e-10).max())
        return super().predict_features(features)


def test_workers_take_denormal_numbers_for_zero() -> None:
    """They would slow the front-end to a crawl: a fade-out of a synthesizer is full of them."""
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor computes with denormal numbers")
    model = Denormal()
    with Engine(model) as engine:
        stream = engine.open_stream(Priority.FILE, slice(0, 1))
        stream.submit([np.zeros(WINDOW, np.float32)], new_hops=1).result(60)
    assert model.result == 0.0
