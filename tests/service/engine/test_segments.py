"""Segments of a recording that are computed at once have the bits of a single pass."""

import math
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from model.config import HOP, WINDOW
from model.transcriber import TranscriptionModel
from service.engine import runners, segments
from service.engine.batching import EngineError, Priority, Probabilities, Window
from service.engine.engine import Engine
from service.engine.segments import SegmentedStream
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


class Recorder:
    """A stream that answers nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[float], int]] = []  # first samples of the windows, unread

    def submit(
        self, windows: Sequence[Window], new_hops: int, unread: int = 0
    ) -> Future[Probabilities]:
        self.asked.append(([float(window[0]) for window in windows], unread))
        return Future()

    def close(self) -> None:
        pass


def test_a_segment_begins_with_the_windows_before_it() -> None:
    streams: list[Recorder] = []

    def open_stream() -> Recorder:
        streams.append(Recorder())
        return streams[-1]

    stream = SegmentedStream(open_stream, refill_hops=98, segments=2)
    last = segments.SEGMENT_WINDOWS
    for first in range(0, last + 16, 8):
        given = [np.full(WINDOW, number, np.float32) for number in range(first, first + 8)]
        stream.submit(given, 16)
        for window in given:
            window[:] = -1  # the caller reuses them once they are answered
    assert [len(one.asked) for one in streams] == [last // 8, 2]
    assert streams[1].asked[0] == ([float(n) for n in range(last - 7, last + 8)], 7)
    assert streams[1].asked[1] == ([float(n) for n in range(last + 8, last + 16)], 0)


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
