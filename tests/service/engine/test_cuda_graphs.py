"""Batches in buckets; the recording of graphs itself needs a GPU."""

import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.config import HOP, WINDOW
from model.fast.network import FastNetwork, fast_network
from model.transcriber import TranscriptionModel
from service.engine import cuda_graphs
from service.engine.cuda_graphs import GraphRunner, Repeat
from service.stream.windows import PendingWindows
from tests.networks import FILTERBANK, noise

POSITIONS = slice(50, 54)


def again(work: Callable[[], None]) -> Repeat:
    """Stands in for a graph: the work is simply repeated."""
    work()
    return work


def network() -> tuple[TranscriptionModel, FastNetwork]:
    torch.manual_seed(0)
    transcriber = TranscriptionModel(FILTERBANK).eval()
    fast = fast_network(transcriber)
    assert fast is not None
    return transcriber, fast


def rows_of(runner: GraphRunner, windows: list[NDArray[np.float32]]) -> list[torch.Tensor]:
    dues = [PendingWindows(window, 1, 3, POSITIONS) for window in windows]
    return [row for due in dues for row in runner.rows(runner.open_stream(POSITIONS), due)]


def test_any_number_of_windows_in_buckets() -> None:
    transcriber, fast = network()
    runner = GraphRunner(fast, torch.device("cpu"), [POSITIONS], again)
    windows = noise(11)
    expected = transcriber.predict(torch.from_numpy(np.stack(windows)))[:, :, POSITIONS].numpy()
    rows = rows_of(runner, windows)
    answers = {}
    for count in (11, 1, 8, 9):  # smaller batches leave older windows in the bucket
        answers[count] = runner.predict(rows[:count], POSITIONS)
    for count, answer in answers.items():
        np.testing.assert_allclose(answer, expected[:count], atol=3e-5)


def test_windows_come_with_what_was_before_them() -> None:
    transcriber, fast = network()
    context = FILTERBANK.context
    audio = (0.1 * np.random.default_rng(0).standard_normal(WINDOW + 40 * HOP)).astype(np.float32)
    whole_audio = torch.cat([torch.zeros(context), torch.from_numpy(audio)])
    runner = GraphRunner(fast, torch.device("cpu"), [POSITIONS], again)
    stream = runner.open_stream(POSITIONS)
    begin = 0
    for hops in (0, 32, 1, 7):
        begin += hops * HOP
        rows = runner.rows(
            stream, PendingWindows(audio[begin : begin + WINDOW], 1, max(1, hops), POSITIONS)
        )
        expected = transcriber.predict(whole_audio[None, begin : begin + context + WINDOW])
        np.testing.assert_allclose(
            runner.predict(rows, POSITIONS), expected[:, :, POSITIONS].numpy(), atol=3e-5
        )


def test_graphs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_GRAPHS", 2)
    recorded = 0

    def counting(work: Callable[[], None]) -> Repeat:
        nonlocal recorded
        recorded += 1
        return again(work)

    runner = GraphRunner(network()[1], torch.device("cpu"), [POSITIONS], counting)
    (row,) = rows_of(runner, noise(1))
    for start in (1, 2, 1, 3, 1, 2):  # 2 is the least recently used when 3 comes
        runner.predict([row], slice(start, start + 1))
    assert recorded == 4


def test_a_graph_keeps_what_it_reads_and_writes() -> None:
    works: list[weakref.ref[Callable[[], None]]] = []

    def forgetful(work: Callable[[], None]) -> Repeat:
        works.append(weakref.ref(work))
        work()
        return lambda: None

    runner = GraphRunner(network()[1], torch.device("cpu"), [POSITIONS], forgetful)
    runner.predict(rows_of(runner, noise(1)), POSITIONS)
    assert works[0]() is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_graphs_give_the_numbers_of_the_plain_network() -> None:
    transcriber, _ = network()
    windows = noise(9)
    expected = transcriber.predict(torch.from_numpy(np.stack(windows)))[:, :, POSITIONS].numpy()
    fast = fast_network(transcriber.to("cuda").compute_in(torch.bfloat16))
    assert fast is not None
    runner = GraphRunner(fast, torch.device("cuda"), [POSITIONS])
    for _ in range(2):
        answer = runner.predict(rows_of(runner, windows), POSITIONS)
        np.testing.assert_allclose(answer[:, :-1], expected[:, :-1], atol=0.03)
