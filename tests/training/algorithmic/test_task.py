"""The algorithmic task in the training loop, and its scores."""

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


def make_task(config: AlgorithmicConfig = TINY) -> AlgorithmicTask:
    torch.manual_seed(5)
    return AlgorithmicTask(config)


def test_bins_join_one_after_another() -> None:
    task = make_task(replace(TINY, curriculum_steps=4))
    walked = [tuple(batch) for batch in islice(task.batches(seed=2), 5)]
    assert walked == [(8,), (8,), (8, 16), (8, 16), (8, 16)]
    with pytest.raises(ValueError, match="curriculum_steps"):
        AlgorithmicConfig(curriculum_steps=-1)


LOOP = LoopConfig(steps=12, learning_rate=0.01, average=0.5, log_steps=4, bfloat16=False)
RUN = AlgorithmicRun(algorithmic=TINY, loop=LOOP)


@pytest.mark.parametrize("optimizer", ["radam", "muon", "released"])
def test_two_slices_equal_one_run(tmp_path: Path, optimizer: str) -> None:
    loop = replace(RUN.loop, optimizer=optimizer)  # type: ignore[arg-type]
    once = replace(RUN, loop=loop, out=tmp_path / "once")
    train(once)
    sliced = replace(RUN, loop=replace(loop, max_steps=5), out=tmp_path / "sliced")
    train(sliced)
    torch.randn(7)  # other code may draw random numbers in between
    train(replace(sliced, resume=True))
    train(replace(sliced, loop=loop, resume=True))
    one, two = (torch.load(run.out / "state.pt", weights_only=True) for run in (once, sliced))
    assert one["step"] == two["step"] == 12
    for name in ("network", "average"):
        for key, value in one[name].items():
            assert torch.equal(value, two[name][key]), key
    assert same_weights(once.out, sliced.out)


class Oracle(nn.Module):
    """Network that sorts and leaves padding in place. If `spoil`, it corrupts one symbol of every
    second sequence."""

    def __init__(self, spoil: bool = False) -> None:
        super().__init__()
        self.device = nn.Parameter(torch.zeros(1))
        self.spoil = spoil

    def forward(self, symbols: Tensor) -> Tensor:
        out = symbols.where(symbols != 0, 99).sort(dim=1).values
        out = out.where(out != 99, 0)
        if self.spoil:
            out[::2, 0] = out[::2, 0] % 11 + 1
        return F.one_hot(out, 12).float()


def test_symbols_are_pooled_and_sequences_counted() -> None:
    examples = draw_examples(PROBLEMS["sorting"], np.random.default_rng(0), 16, 50)
    score = score_examples(Oracle(spoil=True), examples)
    assert score.sequence_accuracy == 0.5
    assert score.symbol_accuracy == pytest.approx(1 - 25 / (50 * 16))


def test_padding_counts_only_where_it_is_taken_for_a_symbol() -> None:
    inputs = np.array([[3, 1, 0, 0]], dtype=np.uint8)
    right = Examples(inputs, np.array([[1, 3, 0, 0]], dtype=np.uint8))
    longer = Examples(inputs, np.array([[1, 3, 5, 0]], dtype=np.uint8))
    assert score_examples(Oracle(), right).symbol_accuracy == 1
    assert score_examples(Oracle(), longer).symbol_accuracy == pytest.approx(2 / 3)
