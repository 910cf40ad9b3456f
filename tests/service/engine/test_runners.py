"""A network on the cores of a processor: the plain network's numbers, the same in any company."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
from service.engine.runners import CpuRunner, Runner, make_runner
from service.stream.windows import PendingWindows
from tests.networks import FILTERBANK, STRIDED, noise

BOTH = pytest.mark.parametrize("config", [FILTERBANK, STRIDED], ids=["filterbank", "strided"])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
POSITIONS = slice(50, 54)


def network(config: ModelConfig, dtype: torch.dtype = torch.float32) -> TranscriptionModel:
    torch.manual_seed(0)
    return TranscriptionModel(config).eval().compute_in(dtype)


def rows(runner: Runner, windows: list[NDArray[np.float32]]) -> list[torch.Tensor]:
    dues = [PendingWindows(window, 1, 1, POSITIONS) for window in windows]
    streams = [runner.rows(runner.open_stream(POSITIONS), due) for due in dues]
    return [row for (row,) in streams]


@BOTH
@DTYPES
def test_company_changes_no_bit(config: ModelConfig, dtype: torch.dtype) -> None:
    runner = make_runner(network(config, dtype))
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
    runner = make_runner(network(FILTERBANK, dtype))
    audio = (0.1 * np.random.default_rng(0).standard_normal(WINDOW + 12 * 32 * HOP)).astype("f4")
    due = PendingWindows(audio, 12, 32, POSITIONS)
    stream = runner.open_stream(POSITIONS)
    alone = [row for n in range(12) for row in runner.rows(stream, due.subset(n, 1))]
    exact = NetworkStream.advance_batch

    def advance(
        stream: NetworkStream, given: list[torch.Tensor], hops: int, shift: int = 0
    ) -> list[torch.Tensor]:
        wrong = 0 if agree or len(given) == 1 else 1e-3  # alone it is what it should be
        return [row + wrong for row in exact(stream, given, hops, shift)]

    monkeypatch.setattr(NetworkStream, "advance_batch", advance)
    for sizes in ([4, 4, 4], [1, 2, 9], [5, 1, 6]):
        stream = runner.open_stream(POSITIONS)
        together: list[torch.Tensor] = []
        for size in sizes:
            together += runner.rows(stream, due.subset(len(together), size))
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one, other)


def test_rows_that_would_change_together_are_computed_alone_though_two_workers_try_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = make_runner(network(FILTERBANK))
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
    monkeypatch.setattr(load_module, "_OWN_GROUP", own)
    monkeypatch.setattr(load_module, "_GROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert available_cores() == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert available_cores() == 7


def test_the_callers_threads_and_random_numbers_stay_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads_of_a_new_thread() -> int:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(torch.get_num_threads).result()

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
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
        with LocalEngine(storage.load("light")) as engine:
            due = PendingWindows(noise(1)[0], 1, 1, POSITIONS)
            futures = [engine.submit(due) for _ in range(6)]
            assert all(np.isfinite(future.result(60)).all() for future in futures)
            assert threads_of_a_new_thread() == 2
        assert threads_of_a_new_thread() == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(own)
    assert set(seen) == {1}  # threads of the workers
    assert torch.equal(torch.get_rng_state(), state)
