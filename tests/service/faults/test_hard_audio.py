"""Tests of extreme audio with the shipped model: every probability stays finite."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from model import storage
from service.audio.pcm import MAX_AMPLITUDE
from service.engine.local import LocalEngine
from service.notes.events import NoteEvent
from service.notes.tracker_settings import TrackerSettings
from tests.service.notes.synthetic_notes import check_events
from tests.service.streams import audio_format, to_bytes, transcribe_stream

RATE_HZ = 44_100
TIME_S = np.arange(2 * RATE_HZ) / RATE_HZ


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(storage.load("live", "cpu")) as engine:
        yield engine


def square(hz: float) -> NDArray[np.float32]:
    return np.where(np.sin(2 * np.pi * hz * TIME_S) >= 0, 1.0, -1.0).astype(np.float32)


HARD = {
    "square at the Nyquist frequency": square(RATE_HZ / 2),
    "maximum amplitude": MAX_AMPLITUDE * square(110),
    "direct current": np.ones(len(TIME_S), np.float32),
    "denormal numbers": np.full(len(TIME_S), 1e-40, np.float32),
    "one click": np.eye(1, len(TIME_S), RATE_HZ, dtype=np.float32)[0],
}


@pytest.mark.parametrize("samples", HARD.values(), ids=HARD)
def test_extreme_audio_gives_valid_frames_and_notes(
    engine: LocalEngine, samples: NDArray[np.float32]
) -> None:
    events, probabilities = transcribe_stream(
        engine, to_bytes(samples, audio_format(RATE_HZ)), audio_format(RATE_HZ)
    )
    assert np.isfinite(probabilities).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1
    notes = [e for e in events if isinstance(e, NoteEvent) and e.kind != "note_update"]
    check_events(notes, TrackerSettings.from_card(engine.card), probabilities.shape[1])
