"""Tests of the runner that records CUDA graphs. Only one test needs a GPU."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch

from model.config import HOP, WINDOW
from model.fast.network import FastNetwork, fast_network
from model.transcriber import TranscriptionModel
from service.engine import cuda_graphs
from service.engine.cuda_graphs import GraphRunner, Repeat
from service.stream.windows import PendingWindows
from tests.networks import FILTERBANK, noise
from tests.service.engine.test_runners import POSITIONS, rows_of


def record_eagerly(work: Callable[[], None]) -> Repeat:
    """Replace the recording of a graph: return the function itself."""
    work()
    return work


def network() -> tuple[TranscriptionModel, FastNetwork]:
    transcriber = TranscriptionModel(FILTERBANK).eval()
    fast = fast_network(transcriber)
    assert fast is not None
    return transcriber, fast


def test_any_batch_size_matches_the_plain_network() -> None:
    transcriber, fast = network()
    runner = GraphRunner(fast, torch.device("cpu"), [POSITIONS], record_eagerly)
    windows = noise(11)
    expected = transcriber.predict(torch.from_numpy(np.stack(windows)))[:, :, POSITIONS].numpy()
    rows = rows_of(runner, windows)
    # Smaller batches leave older windows in the bucket. Later batches must not change results.
    results = {count: runner.predict(rows[:count], POSITIONS) for count in (11, 1, 8, 9)}
    for count, result in results.items():
        np.testing.assert_allclose(result, expected[:count], atol=3e-5)


def test_windows_include_their_context() -> None:
    transcriber, fast = network()
    context = FILTERBANK.context
    audio = (0.1 * np.random.default_rng(0).standard_normal(WINDOW + 40 * HOP)).astype(np.float32)
    padded = torch.cat([torch.zeros(context), torch.from_numpy(audio)])
    runner = GraphRunner(fast, torch.device("cpu"), [POSITIONS], record_eagerly)
    stream = runner.open_stream()
    start = 0
    for hops in (0, 32, 1, 7):
        start += hops * HOP
        rows = runner.rows(
            stream, PendingWindows(audio[start : start + WINDOW], 1, max(1, hops), POSITIONS)
        )
        expected = transcriber.predict(padded[None, start : start + context + WINDOW])
        np.testing.assert_allclose(
            runner.predict(rows, POSITIONS), expected[:, :, POSITIONS].numpy(), atol=3e-5
        )


def test_number_of_graphs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_GRAPHS", 2)
    recorded = 0

    def count(work: Callable[[], None]) -> Repeat:
        nonlocal recorded
        recorded += 1
        return record_eagerly(work)

    runner = GraphRunner(network()[1], torch.device("cpu"), [POSITIONS], count)
    (row,) = rows_of(runner, noise(1))
    for start in (1, 2, 1, 3, 1, 2):  # 3 evicts 2, the least recently used
        runner.predict([row], slice(start, start + 1))
    assert recorded == 4


def test_graph_keeps_its_buffers_alive() -> None:
    works: list[weakref.ref[Callable[[], None]]] = []

    def record_nothing(work: Callable[[], None]) -> Repeat:
        works.append(weakref.ref(work))
        work()
        return lambda: None

    runner = GraphRunner(network()[1], torch.device("cpu"), [POSITIONS], record_nothing)
    runner.predict(rows_of(runner, noise(1)), POSITIONS)
    assert works[0]() is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graphs_match_the_plain_network() -> None:
    transcriber, _ = network()
    windows = noise(9)
    expected = transcriber.predict(torch.from_numpy(np.stack(windows)))[:, :, POSITIONS].numpy()
    fast = fast_network(transcriber.to("cuda").compute_in(torch.bfloat16))
    assert fast is not None
    runner = GraphRunner(fast, torch.device("cuda"), [POSITIONS])
    for _ in range(2):
        result = runner.predict(rows_of(runner, windows), POSITIONS)
        np.testing.assert_allclose(result[:, :-1], expected[:, :-1], atol=0.03)
