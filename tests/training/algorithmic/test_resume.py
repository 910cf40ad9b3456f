"""A run in slices equals one in a single go, bit for bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.config import RSEConfig
from model.storage import read_tensors
from training.algorithmic.task import AlgorithmicConfig
from training.loop.config import LoopConfig
from training.presets import AlgorithmicRun
from training.run import train

RUN = AlgorithmicRun(
    AlgorithmicConfig(
        task="addition",
        rse=RSEConfig(maps=8, blocks=1, dropout=0.2),
        bins=(8, 16),
        batch_size=4,
        examples_per_length=20,
        validation_examples=10,
    ),
    LoopConfig(steps=12, learning_rate=0.01, average=0.5, log_steps=4, bfloat16=False),
)


@pytest.mark.parametrize("optimizer", ["radam", "muon", "released"])
def test_two_slices_equal_one_run(tmp_path: Path, optimizer: str) -> None:
    loop = replace(RUN.loop, optimizer=optimizer)  # type: ignore[arg-type]
    once = replace(RUN, loop=loop, out=tmp_path / "once")
    train(once)
    sliced = replace(RUN, loop=replace(loop, max_steps=5), out=tmp_path / "sliced")
    train(sliced)
    torch.randn(7)  # whatever else drew random numbers in between
    train(replace(sliced, resume=True))
    train(replace(sliced, loop=loop, resume=True))
    for name in ("network", "average"):
        states = [
            torch.load(tmp_path / run / "state.pt", weights_only=True) for run in ("once", "sliced")
        ]
        assert states[0]["step"] == states[1]["step"] == 12
        for key, value in states[0][name].items():
            assert torch.equal(value, states[1][name][key]), key
    last = [read_tensors(tmp_path / run / "last.safetensors") for run in ("once", "sliced")]
    assert all(torch.equal(last[0][key], last[1][key]) for key in last[0])


def test_validating_more_often_changes_nothing(tmp_path: Path) -> None:
    train(replace(RUN, out=tmp_path / "rare"))
    often = replace(RUN.loop, validate_steps=2)
    train(replace(RUN, loop=often, out=tmp_path / "often"))
    last = [read_tensors(tmp_path / run / "last.safetensors") for run in ("rare", "often")]
    assert all(torch.equal(last[0][key], last[1][key]) for key in last[0])
