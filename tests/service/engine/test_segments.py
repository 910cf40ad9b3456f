"""Segments of a recording that are computed at once have the bits of a single pass."""

import math

import numpy as np
import pytest
import torch

from model.config import HOP, WINDOW
from model.transcriber import TranscriptionModel
from service.engine import runners, segments
from service.engine.batching import EngineError, Priority
from service.engine.engine import Engine
from service.protocol.options import FILE_OPTIONS, StreamOptions
from tests.networks import HISTORY
from tests.service.sessions import listen, pcm, to_bytes


@pytest.mark.parametrize(
    "options",
    [FILE_OPTIONS, StreamOptions(block_frames=4)],  # blocks too short to be cut
    ids=["long blocks", "short blocks"],
)
def test_a_recording_has_the_same_bits_on_one_core_and_in_segments(
    monkeypatch: pytest.MonkeyPatch, options: StreamOptions
) -> None:
    monkeypatch.setattr(runners, "_ALONE_MS", math.inf)  # a worker per core, however slow
    monkeypatch.setattr(segments, "SEGMENT_WINDOWS", 16)
    samples = 0.1 * np.random.default_rng(0).standard_normal(61 * 16 * HOP, np.float32)
    audio, found = pcm(HISTORY.sample_rate), []
    for cores in (1, 2):
        monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
        torch.manual_seed(0)
        with Engine(TranscriptionModel(HISTORY).eval()) as engine:
            engine.warm_up()
            assert engine.workers == cores
            data = to_bytes(samples, audio)
            found.append(listen(engine, data, audio, options, priority=Priority.FILE)[1])
    np.testing.assert_array_equal(found[0], found[1])


def test_a_failure_while_a_segment_is_prepared_fails_its_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = [np.full(WINDOW, number, np.float32) for number in range(4)]
    with Engine(TranscriptionModel(HISTORY).eval()) as engine:
        rows = engine._runner.rows

        def fail_once(*_: object) -> list[torch.Tensor]:
            monkeypatch.setattr(engine._runner, "rows", rows)
            raise RuntimeError("the front-end fails")

        monkeypatch.setattr(engine._runner, "rows", fail_once)
        stream = engine._open(Priority.FILE, slice(0, 1))
        with pytest.raises(EngineError):
            stream.submit(windows[:2], 16, unread=1).result(30)
        assert stream.submit(windows[2:], 16).result(30).shape[:1] == (2,)
