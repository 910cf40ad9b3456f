"""A network on the cores of a processor: the plain network's numbers, the same in any company."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model import storage
from model.config import HOP, WINDOW, ModelConfig
from model.fast.stream import NetworkStream
from model.transcriber import TranscriptionModel
from service.engine import runners
from service.engine.batching import EngineSettings, Priority
from service.engine.engine import Engine
from service.engine.interface import Plan, Runner
from service.engine.runners import CpuRunner, runner_of
from tests.networks import FILTERBANK, HISTORY, STRIDED, noise

BOTH = pytest.mark.parametrize(
    "config", [FILTERBANK, HISTORY, STRIDED], ids=["filterbank", "history", "strided"]
)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
POSITIONS = slice(50, 54)


def network(config: ModelConfig, dtype: torch.dtype = torch.float32) -> TranscriptionModel:
    torch.manual_seed(0)
    return TranscriptionModel(config).eval().compute_in(dtype)


def rows(runner: Runner, windows: list[NDArray[np.float32]]) -> list[torch.Tensor]:
    streams = [runner.rows(runner.open_stream(POSITIONS), [window], 1) for window in windows]
    return [row for (row,) in streams]


@BOTH
@DTYPES
def test_company_changes_no_bit(config: ModelConfig, dtype: torch.dtype) -> None:
    runner = runner_of(network(config, dtype))
    given = rows(runner, noise(4))
    alone = np.concatenate([runner.predict([row], POSITIONS) for row in given])
    for _ in range(2):  # at first tried, then known
        for count in (2, 3, 4):
            np.testing.assert_array_equal(runner.predict(given[:count], POSITIONS), alone[:count])


@DTYPES
@pytest.mark.parametrize("agree", [True, False])
def test_a_streams_windows_have_the_same_bits_together(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, agree: bool
) -> None:
    runner = runner_of(network(HISTORY, dtype))
    audio = (0.1 * np.random.default_rng(0).standard_normal(WINDOW + 12 * 32 * HOP)).astype("f4")
    windows = [audio[n * 32 * HOP :][:WINDOW] for n in range(12)]
    stream = runner.open_stream(POSITIONS)
    alone = [row for window in windows for row in runner.rows(stream, [window], 32)]
    exact = NetworkStream.advance_together

    def advance(
        stream: NetworkStream, given: list[torch.Tensor], hops: int, shift: int = 0
    ) -> list[torch.Tensor]:
        return [row + (0 if agree else 1e-3) for row in exact(stream, given, hops, shift)]

    monkeypatch.setattr(NetworkStream, "advance_together", advance)
    for sizes in ([4, 4, 4], [1, 2, 9], [5, 1, 6]):
        stream, left = runner.open_stream(POSITIONS), list(windows)
        together = []
        for size in sizes:
            together += runner.rows(stream, left[:size], 32)
            del left[:size]
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one, other)


def test_rows_that_would_change_together_are_computed_alone_though_two_workers_try_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = runner_of(network(FILTERBANK))
    assert isinstance(runner, CpuRunner)
    given = rows(runner, noise(2))
    alone = np.concatenate([runner.predict([row], POSITIONS) for row in given])
    exact, others = runner._fast.predict_rows, [True]

    def inexact(asked: Sequence[torch.Tensor], positions: slice) -> torch.Tensor:
        if len(asked) == 2 and others:
            others.clear()
            runner.predict(given, positions)  # another worker comes to its end meanwhile
        return exact(asked, positions) + 1e-3 * (len(asked) - 1)

    monkeypatch.setattr(runner._fast, "predict_rows", inexact)
    for _ in range(2):  # at first tried, then known
        np.testing.assert_array_equal(runner.predict(given, POSITIONS), alone)
    assert not others


@pytest.mark.parametrize(
    ("window_ms", "expected"),
    [
        (1.0, Plan(workers=3, threads=1, batch_windows=4)),
        (10.0, Plan(workers=3, threads=1, batch_windows=2)),
        (300.0, Plan(workers=1, threads=3, batch_windows=1)),
    ],
)
def test_large_windows_are_shared_out_over_the_cores(
    monkeypatch: pytest.MonkeyPatch, window_ms: float, expected: Plan
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(runners, "least_ms", lambda work, clock: window_ms)
    assert runner_of(network(FILTERBANK)).plan(EngineSettings(max_step_ms=25)) == expected


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("800000 100000", 4), ("", 4)],
)
def test_a_quota_limits_the_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, cores: int
) -> None:
    group = tmp_path / "system.slice" / "rse.service"
    group.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("1:cpu:/\n0::/system.slice/rse.service\n", encoding="utf-8")
    if limit:
        (group / "cpu.max").write_text(f"{limit}\n", encoding="utf-8")
    monkeypatch.setattr(runners, "_OWN_GROUP", own)
    monkeypatch.setattr(runners, "_GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert runners.available_cores() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert runners.available_cores() == 7


@BOTH
def test_streams_get_the_same_bits_from_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, config: ModelConfig
) -> None:
    windows = noise(8)
    answers = []
    monkeypatch.setattr(runners, "_ALONE_MS", math.inf)  # CpuRunner, however slow this machine is
    for cores in (1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(cores))
        with Engine(network(config), EngineSettings(max_step_ms=1000)) as engine:
            engine.warm_up()
            assert engine.workers == cores
            streams = [engine.open_stream(p, POSITIONS) for p in Priority for _ in range(2)]
            futures = [stream.submit(windows[:4], 8) for stream in streams]
            futures += [stream.submit(windows[4:], 8) for stream in streams]
            assert not wait(futures, 60).not_done
        first, second = futures[0].result(), futures[4].result()
        for future, expected in zip(futures, [first] * 4 + [second] * 4, strict=True):
            np.testing.assert_array_equal(future.result(), expected)
        answers.append(np.concatenate([first, second]))
    np.testing.assert_array_equal(answers[0], answers[1])


def test_the_callers_threads_and_random_numbers_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads_of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(torch.get_num_threads).result()

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(runners, "_ALONE_MS", math.inf)
    own = torch.get_num_threads()
    seen = []
    predict = CpuRunner.predict

    def watched(*args: Any) -> NDArray[np.float32]:
        seen.append(torch.get_num_threads())
        return predict(*args)

    monkeypatch.setattr(CpuRunner, "predict", watched)
    try:
        torch.set_num_threads(2)
        state = torch.get_rng_state()
        with Engine(storage.load("light")) as engine:
            engine.warm_up()
            streams = [engine.open_stream(Priority.LIVE, POSITIONS) for _ in range(6)]
            for future in [stream.submit(noise(4), 32) for stream in streams]:
                future.result(60)
            assert threads_of_a_new_thread() == 2
        assert threads_of_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(own)
    assert set(seen) == {1}  # those of the workers
    assert torch.equal(torch.get_rng_state(), state)
