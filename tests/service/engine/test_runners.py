"""Tests of runners on a CPU, whose results must not depend on the batch."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model import storage
from model.config import HOP, WINDOW, ModelConfig
from model.fast.network import NetworkStream
from model.transcriber import TranscriptionModel
from service.engine import load as load_module
from service.engine.load import available_cores
from service.engine.local import LocalEngine
from service.engine.runners import CpuRunner, PlainRunner, Runner, calibrate, make_runner
from service.stream.windows import EngineError, PendingWindows
from tests.fakes import FakeTranscriber
from tests.networks import FILTERBANK, STRIDED, noise

BOTH = pytest.mark.parametrize("config", [FILTERBANK, STRIDED], ids=["filterbank", "strided"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
POSITIONS = slice(50, 54)


def network(config: ModelConfig, dtype: torch.dtype = torch.float32) -> TranscriptionModel:
    return TranscriptionModel(config).eval().compute_in(dtype)


def rows_of(runner: Runner, windows: list[NDArray[np.float32]]) -> list[torch.Tensor]:
    pending = [PendingWindows(window, 1, 1, POSITIONS) for window in windows]
    return [row for new in pending for row in runner.rows(runner.open_stream(), new)]


@BOTH
@DTYPES
def test_batches_change_no_bit(config: ModelConfig, dtype: torch.dtype) -> None:
    runner = make_runner(network(config, dtype))
    rows = rows_of(runner, noise(4))
    alone = np.concatenate([runner.predict([row], POSITIONS) for row in rows])
    for _ in range(2):  # the first pass compares batches, the second uses the result
        for count in (2, 3, 4):
            np.testing.assert_array_equal(runner.predict(rows[:count], POSITIONS), alone[:count])


@DTYPES
@pytest.mark.parametrize("is_exact", [True, False])
def test_consecutive_windows_have_the_same_bits_in_batches(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, is_exact: bool
) -> None:
    runner = make_runner(network(FILTERBANK, dtype))
    audio = (0.1 * np.random.default_rng(0).standard_normal(WINDOW + 12 * 32 * HOP)).astype("f4")
    pending = PendingWindows(audio, 12, 32, POSITIONS)
    stream = runner.open_stream()
    alone = [row for n in range(12) for row in runner.rows(stream, pending.subset(n, 1))]
    advance_batch = NetworkStream.advance_batch

    def advance(
        stream: NetworkStream, samples: list[torch.Tensor], hops: int, shift: int = 0
    ) -> list[torch.Tensor]:
        error = 0 if is_exact or len(samples) == 1 else 1e-3
        return [row + error for row in advance_batch(stream, samples, hops, shift)]

    monkeypatch.setattr(NetworkStream, "advance_batch", advance)
    for sizes in ([4, 4, 4], [1, 2, 9], [5, 1, 6]):
        stream = runner.open_stream()
        together: list[torch.Tensor] = []
        for size in sizes:
            together += runner.rows(stream, pending.subset(len(together), size))
        for single, batched in zip(alone, together, strict=True):
            assert torch.equal(single, batched)


def test_concurrent_workers_compute_inexact_batches_separately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = make_runner(network(FILTERBANK))
    assert isinstance(runner, CpuRunner)
    rows = rows_of(runner, noise(2))
    alone = np.concatenate([runner.predict([row], POSITIONS) for row in rows])
    predict_rows, is_first_call = runner._fast.predict_rows, True

    def inexact(batch: Sequence[torch.Tensor], positions: slice) -> torch.Tensor:
        nonlocal is_first_call
        if len(batch) == 2 and is_first_call:
            is_first_call = False
            runner.predict(rows, positions)  # another worker finishes the same comparison first
        return predict_rows(batch, positions) + 1e-3 * (len(batch) - 1)

    monkeypatch.setattr(runner._fast, "predict_rows", inexact)
    for _ in range(2):  # the first pass compares batches, the second uses the result
        np.testing.assert_array_equal(runner.predict(rows, POSITIONS), alone)
    assert not is_first_call


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("800000 100000", 4), ("", 4)],
)
def test_cgroup_quota_limits_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, cores: int
) -> None:
    group = tmp_path / "system.slice" / "rse.service"
    group.mkdir(parents=True)
    own_group = tmp_path / "cgroup"
    own_group.write_text("1:cpu:/\n0::/system.slice/rse.service\n", encoding="utf-8")
    if limit:
        (group / "cpu.max").write_text(f"{limit}\n", encoding="utf-8")
    monkeypatch.setattr(load_module, "_OWN_GROUP", own_group)
    monkeypatch.setattr(load_module, "_GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert available_cores() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert available_cores() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_cores() == 1


def test_engine_preserves_threads_and_random_state_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads_of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(torch.get_num_threads).result()

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    initial_threads = torch.get_num_threads()
    worker_threads = set()
    predict = CpuRunner.predict

    def record_threads(*args: Any) -> NDArray[np.float32]:
        worker_threads.add(torch.get_num_threads())
        return predict(*args)

    monkeypatch.setattr(CpuRunner, "predict", record_threads)
    try:
        torch.set_num_threads(2)
        state = torch.get_rng_state()
        with LocalEngine(storage.load("light")) as engine:
            pending = PendingWindows(noise(1)[0], 1, 1, POSITIONS)
            futures = [engine.submit(pending) for _ in range(6)]
            assert all(np.isfinite(future.result(60)).all() for future in futures)
            assert threads_of_a_new_thread() == 2
        assert threads_of_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(initial_threads)
    assert worker_threads == {1}
    assert torch.equal(torch.get_rng_state(), state)


def test_closed_engine_raises_engine_errors() -> None:
    engine = LocalEngine(network(FILTERBANK))
    stream = engine.open_stream()
    engine.close()
    pending = PendingWindows(noise(1)[0], 1, 1, POSITIONS)
    with pytest.raises(EngineError, match="closed"):
        engine.submit(pending)
    with pytest.raises(EngineError, match="closed"):
        engine.compute(stream, pending)


def test_queued_segments_of_a_closed_engine_fail_with_engine_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_running, can_end = Event(), Event()
    predict = CpuRunner.predict

    def slow(*args: Any) -> NDArray[np.float32]:
        is_running.set()
        assert can_end.wait(60)
        return predict(*args)

    monkeypatch.setattr(CpuRunner, "predict", slow)
    engine = LocalEngine(network(FILTERBANK), workers=1)
    pending = PendingWindows(noise(1)[0], 1, 1, POSITIONS)
    running = engine.submit(pending)
    assert is_running.wait(60)
    queued = [engine.submit(pending)]
    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(engine.close)
        with suppress(EngineError):
            while True:  # until the other thread has begun to close the engine
                queued.append(engine.submit(pending))
                time.sleep(0.001)
        can_end.set()
        closing.result(60)
    assert np.isfinite(running.result(0)).all()
    for future in queued:
        with pytest.raises(EngineError, match="closed"):
            future.result(0)


@pytest.mark.parametrize(("window_ms", "windows"), [(4.0, 4), (11.0, 2), (40.0, 1)])
def test_calibration_returns_the_cost_in_a_full_batch(
    monkeypatch: pytest.MonkeyPatch, window_ms: float, windows: int
) -> None:
    """A batch takes 1 ms in addition to its windows, and at most MAX_STEP_MS."""
    clock_ms = 0.0
    monkeypatch.setattr(time, "thread_time", lambda: clock_ms / 1000)

    class TimedRunner(PlainRunner):
        batch_windows = 4

        def predict(self, rows: Sequence[torch.Tensor], positions: slice) -> NDArray[np.float32]:
            nonlocal clock_ms
            clock_ms += 1 + window_ms * len(rows)
            return np.zeros(0, np.float32)

    runner = TimedRunner(FakeTranscriber())
    window_s = calibrate(runner, torch.device("cpu"))
    assert runner.batch_windows == windows
    assert 1000 * window_s == pytest.approx(window_ms + 1 / windows)
