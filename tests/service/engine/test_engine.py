"""The engine: same numbers in any company, failures contained, live before files."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from queue import Queue

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import FRAMES, WINDOW
from service.engine.engine import (
    Engine,
    EngineBusyError,
    EngineClosedError,
    EngineError,
    EngineSettings,
    EngineStream,
    Priority,
)
from tests.fakes import FakeTranscriber, GatedTranscriber

ALL = slice(0, FRAMES)
PATIENCE_S = 60.0  # a machine that does much else must not fail a test


def noise(count: int, seed: int = 0) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return [(0.1 * rng.standard_normal(WINDOW)).astype(np.float32) for _ in range(count)]


@pytest.fixture
def fake() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
def engine(fake: FakeTranscriber) -> Iterator[Engine]:
    with Engine(fake) as engine:
        yield engine


@pytest.fixture
def gated() -> Iterator[tuple[Engine, GatedTranscriber]]:
    fake = GatedTranscriber()
    with Engine(fake, EngineSettings(max_queued_windows=8, gather_ms=0)) as engine:
        yield engine, fake
        fake.gate.set()


def test_results_do_not_depend_on_the_company(gated: tuple[Engine, GatedTranscriber]) -> None:
    engine, fake = gated
    windows = noise(6)
    first = engine.open_stream(Priority.LIVE, ALL).submit(windows[:1], 1)
    assert fake.entered.wait(PATIENCE_S)
    others = [engine.open_stream(Priority.LIVE, ALL) for _ in windows[1:]]
    futures = [s.submit([w], 1) for s, w in zip(others, windows[1:], strict=True)]
    fake.gate.set()
    got = [future.result(PATIENCE_S)[0] for future in [first, *futures]]
    assert fake.batches == [1, 5]
    np.testing.assert_array_equal(
        np.stack(got), FakeTranscriber().predict(torch.from_numpy(np.stack(windows))).numpy()
    )


def test_live_goes_before_files_and_apart_from_them(
    gated: tuple[Engine, GatedTranscriber],
) -> None:
    engine, fake = gated
    order: list[str] = []
    first = engine.open_stream(Priority.FILE, ALL).submit(noise(1), 1)
    assert fake.entered.wait(PATIENCE_S)
    file = engine.open_stream(Priority.FILE, ALL).submit(noise(2), 1)
    live = engine.open_stream(Priority.LIVE, ALL).submit(noise(1), 1)
    file.add_done_callback(lambda _: order.append("file"))
    live.add_done_callback(lambda _: order.append("live"))
    fake.gate.set()
    wait([first, file, live], PATIENCE_S)
    engine.close(PATIENCE_S)  # callbacks have run then
    assert order == ["live", "file"]
    assert fake.batches == [1, 1, 2]


def test_a_batch_waits_for_the_windows_of_other_live_streams(fake: FakeTranscriber) -> None:
    with Engine(fake, EngineSettings(gather_ms=1_000_000)) as engine:
        streams = [engine.open_stream(Priority.LIVE, ALL) for _ in range(3)]
        idle = engine.open_stream(Priority.LIVE, ALL)
        futures = [stream.submit(noise(1), 1) for stream in streams]
        time.sleep(0.05)
        assert not any(future.done() for future in futures)  # the fourth may still come
        idle.close()
        wait(futures, PATIENCE_S)  # long before the gathering would be over of itself
        assert all(future.done() for future in futures)
        assert fake.batches == [3]


def test_a_batch_waits_for_no_more_than_its_few_milliseconds(fake: FakeTranscriber) -> None:
    with Engine(fake, EngineSettings(gather_ms=2.0)) as engine:
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


def test_a_cancelled_request_is_skipped_and_its_stream_begins_anew(
    gated: tuple[Engine, GatedTranscriber],
) -> None:
    engine, fake = gated
    stream = engine.open_stream(Priority.LIVE, ALL)
    assert isinstance(stream, EngineStream)
    first = stream.submit(noise(1), 1)
    assert fake.entered.wait(PATIENCE_S)
    before = stream.features
    cancelled = stream.submit(noise(1), 1)
    assert cancelled.cancel()
    after = stream.submit(noise(1), 1)
    fake.gate.set()
    assert first.result(PATIENCE_S) is not None
    assert after.result(PATIENCE_S) is not None
    assert fake.batches == [1, 1]
    assert stream.features is not before


def test_a_full_queue_refuses_and_recovers(gated: tuple[Engine, GatedTranscriber]) -> None:
    engine, fake = gated
    stream = engine.open_stream(Priority.FILE, ALL)
    first = stream.submit(noise(1), 1)
    assert fake.entered.wait(PATIENCE_S)
    waiting = stream.submit(noise(8), 1)
    with pytest.raises(EngineBusyError, match="8 windows wait"):
        stream.submit(noise(1), 1)
    fake.gate.set()
    wait([first, waiting], PATIENCE_S)
    assert stream.submit(noise(1), 1).result(PATIENCE_S) is not None


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


def test_warm_up_makes_ready(engine: Engine, fake: FakeTranscriber) -> None:
    assert not engine.ready
    engine.warm_up()
    assert engine.ready
    assert set(fake.batches) == {1, engine.settings.max_file_batch_windows}
    assert engine.workers == 1


def test_no_thread_is_left_behind() -> None:
    before = set(threading.enumerate())
    for _ in range(5):
        with Engine(FakeTranscriber()) as engine:
            engine.warm_up()
    assert set(threading.enumerate()) <= before
