"""Tests of the algorithmic task in the training loop, and of its accuracy."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.config import RSEConfig
from tests.training.conftest import same_weights
from training.algorithmic.data import PROBLEMS, Examples
from training.algorithmic.evaluate import draw_examples, score_examples
from training.algorithmic.task import AlgorithmicConfig, AlgorithmicTask
from training.loop.loop import LoopConfig
from training.presets import AlgorithmicRun
from training.run import train

TINY = AlgorithmicConfig(
    task="sorting",
    rse=RSEConfig(maps=8, blocks=1, dropout=0.1),
    bins=(8, 16),
    batch_size=4,
    examples_per_length=50,
    validation_examples=20,
)


def test_the_curriculum_adds_bins_over_time() -> None:
    torch.manual_seed(5)
    task = AlgorithmicTask(replace(TINY, curriculum_steps=4))
    bins = [tuple(batch) for batch in islice(task.batches(seed=2), 5)]
    assert bins == [(8,), (8,), (8, 16), (8, 16), (8, 16)]
    assert task.windows(5) == TINY.batch_size * 8
    with pytest.raises(ValueError, match="curriculum_steps"):
        AlgorithmicConfig(curriculum_steps=-1)


LOOP = LoopConfig(steps=12, learning_rate=0.01, average=0.5, log_steps=4, bfloat16=False)
RUN = AlgorithmicRun(algorithmic=TINY, loop=LOOP)


@pytest.mark.parametrize("optimizer", ["radam", "muon", "released"])
def test_a_resumed_run_equals_an_uninterrupted_run(tmp_path: Path, optimizer: str) -> None:
    loop = replace(RUN.loop, optimizer=optimizer)  # type: ignore[arg-type]
    once = replace(RUN, loop=loop, out=tmp_path / "once")
    train(once)
    sliced = replace(RUN, loop=replace(loop, max_minutes=1e-9), out=tmp_path / "sliced")
    train(sliced)
    torch.randn(7)  # changes the global random state
    train(replace(sliced, resume=True))
    train(replace(sliced, loop=loop, resume=True))
    expected, state = (
        torch.load(run.out / "state.pt", weights_only=True) for run in (once, sliced)
    )
    assert expected["step"] == state["step"] == 12
    for name in ("network", "average"):
        for key, value in expected[name].items():
            assert torch.equal(value, state[name][key]), key
    assert same_weights(once.out, sliced.out)


class SortingNetwork(nn.Module):
    """Network that sorts and leaves padding in place. With ``has_errors`` it corrupts one symbol of
    every second sequence."""

    def __init__(self, has_errors: bool = False) -> None:
        super().__init__()
        self.device = nn.Parameter(torch.zeros(1))
        self.has_errors = has_errors

    def forward(self, symbols: Tensor) -> Tensor:
        out = symbols.where(symbols != 0, 99).sort(dim=1).values
        out = out.where(out != 99, 0)
        if self.has_errors:
            out[::2, 0] = out[::2, 0] % 11 + 1
        return F.one_hot(out, 12).float()


def test_accuracy_counts_symbols_and_sequences() -> None:
    examples = draw_examples(PROBLEMS["sorting"], np.random.default_rng(0), 16, 50)
    score = score_examples(SortingNetwork(has_errors=True), examples)
    assert score.sequence_accuracy == 0.5
    assert score.symbol_accuracy == pytest.approx(1 - 25 / (50 * 16))


def test_padding_counts_only_if_a_symbol_is_expected() -> None:
    inputs = np.array([[3, 1, 0, 0]], dtype=np.uint8)
    correct = Examples(inputs, np.array([[1, 3, 0, 0]], dtype=np.uint8))
    longer = Examples(inputs, np.array([[1, 3, 5, 0]], dtype=np.uint8))
    assert score_examples(SortingNetwork(), correct).symbol_accuracy == 1
    assert score_examples(SortingNetwork(), longer).symbol_accuracy == pytest.approx(2 / 3)
