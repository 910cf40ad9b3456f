"""The engine: same numbers in any company, failures contained, live before files."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from queue import Queue

import numpy as np
import pytest
import torch

from model.config import FRAMES, WINDOW
from service.engine.batching import (
    EngineClosedError,
    EngineError,
    EngineSettings,
    Priority,
)
from service.engine.engine import Engine
from tests.fakes import FakeTranscriber, GatedTranscriber
from tests.networks import noise

ALL = slice(0, FRAMES)
PATIENCE_S = 60.0  # a machine that does much else must not fail a test


@pytest.fixture
def gated() -> Iterator[tuple[Engine, GatedTranscriber]]:
    fake = GatedTranscriber()
    with Engine(fake, EngineSettings(gather_ms=0)) as engine:
        yield engine, fake
        fake.gate.set()


def test_a_batch_waits_for_the_windows_of_other_live_streams() -> None:
    fake, windows = FakeTranscriber(), noise(3)
    with Engine(fake, EngineSettings(gather_ms=1_000_000)) as engine:
        streams = [engine.open_stream(Priority.LIVE, ALL) for _ in windows]
        idle = engine.open_stream(Priority.LIVE, ALL)
        futures = [stream.submit([w], 1) for stream, w in zip(streams, windows, strict=True)]
        time.sleep(0.05)
        assert not any(future.done() for future in futures)  # the fourth may still come
        idle.close()
        # Long before the gathering would be over of itself.
        got = [future.result(PATIENCE_S)[0] for future in futures]
        assert fake.batches == [3]
    alone = [FakeTranscriber().predict(torch.from_numpy(window[None]))[0] for window in windows]
    np.testing.assert_array_equal(np.stack(got), np.stack(alone))


def test_a_batch_waits_for_no_more_than_its_few_milliseconds() -> None:
    with Engine(FakeTranscriber(), EngineSettings(gather_ms=2.0)) as engine:
        silent = engine.open_stream(Priority.LIVE, ALL)
        stream = engine.open_stream(Priority.LIVE, ALL)
        assert stream.submit(noise(1), 1).result(PATIENCE_S) is not None  # the other never comes
        silent.close()


class SteppedTranscriber(FakeTranscriber):
    """Tells of each batch that it begins, and waits for leave to compute it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: Queue[int] = Queue()  # windows
        self.leave = threading.Semaphore(0)

    def predict_features(self, features: torch.Tensor) -> torch.Tensor:
        self.begun.put(len(features))
        assert self.leave.acquire(timeout=PATIENCE_S)
        return super().predict_features(features)


def test_a_long_upload_keeps_no_live_window_waiting() -> None:
    stepped = SteppedTranscriber()
    with Engine(stepped, EngineSettings(gather_ms=0)) as engine:
        upload = engine.open_stream(Priority.FILE, ALL)
        parts = [upload.submit(noise(8), 8) for _ in range(10)]
        live = engine.open_stream(Priority.LIVE, ALL)
        for _ in range(5):
            assert stepped.begun.get(timeout=PATIENCE_S) == 8  # the upload's; more of them wait
            answer = live.submit(noise(1), 8)
            stepped.leave.release()
            assert stepped.begun.get(timeout=PATIENCE_S) == 1  # the live window is next even so
            stepped.leave.release()
            assert answer.result(PATIENCE_S) is not None
        stepped.leave.release(len(parts))
        assert not wait(parts, PATIENCE_S).not_done


def test_a_failed_front_end_fails_its_own_stream_only(
    gated: tuple[Engine, GatedTranscriber],
) -> None:
    engine, fake = gated
    first = engine.open_stream(Priority.LIVE, ALL).submit(noise(1), 1)
    assert fake.entered.wait(PATIENCE_S)
    poison = np.full(WINDOW, FakeTranscriber.POISON, np.float32)
    bad_stream = engine.open_stream(Priority.LIVE, ALL)
    bad = bad_stream.submit([poison], 1)
    good = engine.open_stream(Priority.LIVE, ALL).submit(noise(1), 1)
    fake.gate.set()
    with pytest.raises(EngineError, match="poisoned window"):
        bad.result(PATIENCE_S)
    assert first.result(PATIENCE_S) is not None
    assert good.result(PATIENCE_S) is not None
    assert bad_stream.submit(noise(1), 1).result(PATIENCE_S) is not None


def test_closing_fails_what_waits_and_refuses_what_comes() -> None:
    fake = GatedTranscriber()
    engine = Engine(fake)
    stream = engine.open_stream(Priority.LIVE, ALL)
    running = stream.submit(noise(1), 1)
    assert fake.entered.wait(PATIENCE_S)
    waiting = stream.submit(noise(1), 1)
    engine.close(timeout_s=0)  # the worker stands at the gate
    with pytest.raises(EngineClosedError):
        waiting.result(PATIENCE_S)
    fake.gate.set()
    assert running.result(PATIENCE_S) is not None
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        stream.submit(noise(1), 1)
    with pytest.raises(EngineClosedError):
        engine.open_stream(Priority.LIVE, ALL)
    assert not engine.ready
