"""LAMBADA in the training loop."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.conftest import same_weights
from training.lambada.task import LambadaConfig, LambadaTask
from training.loop.config import LoopConfig
from training.loop.parallel import Share
from training.loop.symbol_losses import PADDING
from training.presets import LambadaRun
from training.run import train

LOOP = LoopConfig(steps=12, learning_rate=0.01, average=0.5, log_steps=4, bfloat16=False)


def make_task(config: LambadaConfig, folder: Path) -> LambadaTask:
    torch.manual_seed(3)
    return LambadaTask(config, folder)


def test_it_learns_to_point(tiny_config: LambadaConfig, tmp_path: Path) -> None:
    task = make_task(tiny_config, tmp_path / "fresh")
    before = task.validate(task.network)["accuracy"]
    loop = replace(LOOP, steps=250, average=0.9)
    after = train(LambadaRun(tiny_config, loop, tmp_path / "run"))["accuracy"]
    assert before < 0.7
    assert after > 0.95


@pytest.mark.parametrize(("preprocessing", "padding"), [("clean", "front"), ("released", "random")])
def test_batches_are_a_function_of_seed_and_step(
    tiny_config: LambadaConfig, tmp_path: Path, preprocessing: str, padding: str
) -> None:
    config = replace(tiny_config, preprocessing=preprocessing, padding=padding)  # type: ignore[arg-type]
    task = make_task(config, tmp_path)
    with task.batches(seed=2) as batches:
        walked = [next(batches) for _ in range(30)]
    with task.batches(seed=2, step=25) as batches:
        again = next(batches)
    assert (again.inputs == walked[25].inputs).all()
    assert (again.targets == walked[25].targets).all()
    assert again.inputs.shape == (16, 32)
    ends = (again.inputs != PADDING).cumsum(axis=1).argmax(axis=1)
    assert (len(set(ends.tolist())) == 1) == (padding == "front")
    loss, _ = task.loss(again)
    assert torch.isfinite(loss)


def test_processes_share_a_batch(tiny_config: LambadaConfig, tmp_path: Path) -> None:
    task = make_task(replace(tiny_config, padding="random"), tmp_path)
    with task.batches(seed=2, step=7) as batches:
        whole = next(batches)
    parts = []
    for rank in range(2):
        with task.batches(seed=2, step=7, share=Share(rank, 2)) as batches:
            parts.append(next(batches).inputs)
    assert sorted(np.concatenate(parts).tolist()) == sorted(whole.inputs.tolist())


def test_two_slices_equal_one_run(tiny_config: LambadaConfig, tmp_path: Path) -> None:
    config = replace(tiny_config, padding="random", word_dropout=0.2, validation_passages=4)
    train(LambadaRun(config, LOOP, tmp_path / "once"))
    sliced = LambadaRun(config, replace(LOOP, max_steps=5), tmp_path / "sliced")
    train(sliced)
    train(replace(sliced, loop=LOOP, resume=True))
    assert same_weights(tmp_path / "once", tmp_path / "sliced")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"length": 48}, "power of two: 48"), ({"batch_size": 0}, "^batch_size must")],
)
def test_impossible_configurations_are_refused(
    tiny_config: LambadaConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(tiny_config, **change)  # type: ignore[arg-type]
