"""Tests of the memory in which workers return the probabilities of segments."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.config import FRAMES, LIVE, PITCHES, WINDOW, ModelConfig
from service.engine.segment_memory import SLOTS, SegmentMemory, create_file
from service.stream.windows import SEGMENT_FRAMES, PendingWindows


def refuse(name: str) -> int:
    raise PermissionError(name)


def segment(windows: int, positions: slice) -> PendingWindows:
    return PendingWindows(np.zeros(WINDOW, np.float32), windows, 1, positions)


@pytest.mark.parametrize("in_memory", [True, False])
def test_values_of_a_worker_reach_the_service(
    in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    with create_file() as file:
        service = SegmentMemory(file.fileno(), LIVE)
        descriptor = os.dup(file.fileno())
        worker = SegmentMemory(descriptor, LIVE)
        os.close(descriptor)
    segments = [segment(5 + slot, slice(20, 24)) for slot in range(SLOTS)]
    for slot, due in enumerate(segments):
        worker.probabilities(slot, due)[:] = slot + 1
    for slot, due in enumerate(segments):
        values = service.probabilities(slot, due)
        assert values.shape == (due.windows, len(LIVE.outputs), 4, PITCHES)
        assert np.all(values == slot + 1)


@given(first=st.integers(0, FRAMES - 1), frames=st.integers(1, FRAMES))
def test_longest_segments_fit_into_their_slots(first: int, frames: int) -> None:
    positions = slice(first, min(first + frames, FRAMES))
    due = segment(SEGMENT_FRAMES // (positions.stop - first), positions)
    config = ModelConfig()
    with create_file() as file:
        memory = SegmentMemory(file.fileno(), config)
        for slot in range(SLOTS):
            memory.probabilities(slot, due)[:] = slot
    assert [memory.probabilities(slot, due).mean() for slot in range(SLOTS)] == [0, 1]
