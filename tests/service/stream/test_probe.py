"""The start of a recording decides which model transcribes it; its events do not show how."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import HEADS
from service.engine.local import LocalEngine
from service.notes.events import NoteEvent
from service.protocol.options import FILE_OPTIONS
from service.stream import probe
from service.stream.recording import (
    ChosenModel,
    RecordingItem,
    TranscriptionResult,
    transcribe_recording,
)
from service.stream.windows import EngineError, InferenceEngine
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, FakeTranscriber, play
from tests.service.apps import sound_file

Frames = list[tuple[int, NDArray[np.float32]]]
SOLO = [(FAKE_PITCHES[i % 4], i + 0.1, i + 0.7) for i in range(38)]
SAMPLES = play(SOLO, 40.0, FAKE_RATE_HZ)
NO_PEDAL = tuple(head for head in HEADS if head != "pedal")


def named(name: str, heads: tuple[str, ...] = HEADS) -> FakeTranscriber:
    model = FakeTranscriber(heads)
    model.config = replace(model.config, name=name)
    return model


@pytest.fixture
def default() -> Iterator[LocalEngine]:
    with LocalEngine(named("default"), 2) as engine:
        yield engine


@pytest.fixture
def other() -> Iterator[LocalEngine]:
    with LocalEngine(named("piano", NO_PEDAL), 2) as engine:
        yield engine


def transcribed(
    samples: NDArray[np.float32],
    engine: InferenceEngine,
    piano: Callable[[], InferenceEngine] | None = None,
    instrument: str = "piano",
) -> tuple[str, list[RecordingItem], Frames]:
    """Return the name of the model, the events and the result, and the frames."""
    items: list[RecordingItem] = []
    frames: Frames = []

    def keep(first_frame: int, block: NDArray[np.float32]) -> None:
        assert items  # the model is known before its frames
        frames.append((first_frame, block.copy()))

    file = io.BytesIO(sound_file(samples, "WAV", "FLOAT", FAKE_RATE_HZ))
    options = replace(FILE_OPTIONS, instruments=(instrument,))
    recording = transcribe_recording(file, engine, options, piano=piano, on_frames=keep)
    items.extend(item for item in recording)
    chosen = items[0]
    assert isinstance(chosen, ChosenModel)
    events = [item for item in items if isinstance(item, NoteEvent)]
    return chosen.config.name, [*events, items[-1]], frames


def check_equal(one: Any, other: Any) -> None:
    assert one[:2] == other[:2]
    assert [frame for frame, _ in one[2]] == [frame for frame, _ in other[2]]
    for (_, block), (_, expected) in zip(one[2], other[2], strict=True):
        np.testing.assert_array_equal(block, expected)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not fail a test."""
    monkeypatch.setattr(probe, "MAX_PIANO_LOAD", 100.0)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("seconds", [5, 40])
def test_the_piano_model_transcribes_a_piano(
    default: LocalEngine, other: LocalEngine, seconds: int
) -> None:
    samples = SAMPLES[: seconds * FAKE_RATE_HZ]
    found = transcribed(samples, default, lambda: other)
    assert found[0] == "piano"
    check_equal(found, transcribed(samples, other))


def never() -> InferenceEngine:
    raise AssertionError("the model for pianos is not needed")


def test_the_default_model_transcribes_other_instruments(default: LocalEngine) -> None:
    found = transcribed(SAMPLES, default, never, "violin")
    assert found[0] == "default"
    check_equal(found, transcribed(SAMPLES, default, instrument="violin"))
    silence = np.zeros(FAKE_RATE_HZ, np.float32)
    assert transcribed(silence, default, never)[0] == "default"


@pytest.mark.parametrize("slow", [True, False], ids=["slow", "failing"])
def test_the_default_model_replaces_a_piano_model_that_is_slow_or_fails(
    default: LocalEngine, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr(probe, "MAX_PIANO_LOAD", 0.0 if slow else 100.0)
    model = named("piano")
    model.fail_next_batch = not slow
    with LocalEngine(model, 1) as other:
        found = transcribed(SAMPLES, default, lambda: other)
    assert found[0] == "default"
    check_equal(found, transcribed(SAMPLES, default))


def test_a_failure_at_the_start_is_reported_after_the_notes_before_it(
    default: LocalEngine,
) -> None:
    samples = SAMPLES.copy()
    samples[28 * FAKE_RATE_HZ :] = FakeTranscriber.POISON
    file = io.BytesIO(sound_file(samples, "WAV", "FLOAT", FAKE_RATE_HZ))
    items: list[RecordingItem] = []
    recording = transcribe_recording(file, default, piano=never)
    with pytest.raises(EngineError, match="poisoned"):
        items.extend(item for item in recording)
    result = items[-1]
    assert isinstance(result, TranscriptionResult)
    assert len(result.notes) > 15
