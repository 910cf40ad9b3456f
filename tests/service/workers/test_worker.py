"""Tests of a worker in this process, without a pool."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from service.engine.load import WorkerConfig
from service.engine.runners import PlainRunner
from service.engine.segment_memory import create_file
from service.stream.windows import BatchTiming
from service.workers.worker import Audio, Segment, SegmentResult, Worker
from tests.fakes import FAKE_RATE_HZ, FakeTranscriber
from tests.service.workers.segments import segment
from tests.service.workers.sessions import open_command

SECOND = bytes(2 * FAKE_RATE_HZ)
model = FakeTranscriber()


def load_model(name: str, device: str) -> FakeTranscriber:
    return model


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr("service.workers.worker.POLL_INTERVAL_S", 1e-9)  # each step has output
    # In this thread, denormal numbers must stay as they are for other tests.
    monkeypatch.setattr("service.engine.runners.configure_torch_thread", lambda: None)
    monkeypatch.setattr("service.engine.runners.MAX_STEP_MS", 1e9)
    monkeypatch.setattr(PlainRunner, "batch_windows", 4)
    with create_file() as file:
        yield Worker(WorkerConfig(load_model, "", "cpu"), file.fileno())


def timings(worker: Worker) -> list[BatchTiming]:
    return [reply for reply in worker.step() if isinstance(reply, BatchTiming)]


def open_sessions(worker: Worker, *lookaheads_ms: float) -> None:
    for number, lookahead_ms in enumerate(lookaheads_ms):
        opening = open_command(FAKE_RATE_HZ, lookahead_ms=lookahead_ms)
        worker.handle(replace(opening, number=number))


def test_worker_is_busy_if_its_batch_is_full(worker: Worker) -> None:
    open_sessions(worker, 100)
    worker.handle(Audio(0, SECOND))
    batches = []
    while worker.poll_timeout_s == 0:
        batches += timings(worker)
    sizes = [batch.windows for batch in batches]
    assert set(sizes[:-1]) == {4}
    assert 1 <= sizes[-1] < 4
    assert [batch.is_busy for batch in batches] == [size == 4 for size in sizes]


def test_worker_is_busy_if_other_windows_wait(worker: Worker) -> None:
    """Windows that are read at different positions are computed in different batches."""
    open_sessions(worker, 100, 200)
    for number in range(2):
        worker.handle(Audio(number, SECOND[: len(SECOND) // 3]))
    assert [(batch.windows < 4, batch.is_busy) for batch in timings(worker)] == [(True, True)]


def test_failure_of_a_segment_does_not_affect_others(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("no memory")

    worker.handle(Segment(0, segment(3)))
    worker.handle(Segment(1, segment(5)))
    with monkeypatch.context() as context:
        context.setattr(worker._runner, "open_stream", fail)
        *_, failed = worker.step()
    assert isinstance(failed, SegmentResult)
    assert (failed.slot, str(failed.error)) == (0, "the model failed: no memory")
    results = [reply for _ in range(3) for reply in worker.step()]
    assert SegmentResult(1) in results


def test_probabilities_of_the_wrong_shape_fail_the_segment(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = len(model.config.outputs)
    wrong = np.zeros((3, outputs, 1, 1), np.float32)  # could be broadcast
    monkeypatch.setattr(worker._runner, "predict", lambda rows, positions: wrong)
    worker.handle(Segment(0, segment(3)))
    *_, failed = worker.step()
    assert isinstance(failed, SegmentResult)
    assert "the model failed" in str(failed.error)
