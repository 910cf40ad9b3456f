"""LAMBADA in the training loop."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from model.predict import load_any, predict
from model.storage import WeightsError, read_tensors
from model.symbols import load_symbol_network
from training.lambada.task import LambadaConfig, LambadaTask
from training.lambada.words import FIRST
from training.loop.loop import LoopConfig
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
    after = train(LambadaRun(lambada=tiny_config, loop=loop, out=tmp_path / "run"))["accuracy"]
    assert before < 0.7
    assert after > 0.95


@pytest.mark.parametrize("votes", [0, 3])
def test_batches_are_a_function_of_seed_and_step(
    tiny_config: LambadaConfig, tmp_path: Path, votes: int
) -> None:
    config = replace(tiny_config, votes=votes)
    task = make_task(config, tmp_path)
    walked = next(islice(task.batches(seed=2), 25, None))
    again = next(task.batches(seed=2, step=25))
    assert (again.inputs == walked.inputs).all()
    assert (again.targets == walked.targets).all()
    assert again.inputs.shape == (16, 32)
    ends = (again.inputs != PADDING).cumsum(axis=1).argmax(axis=1)
    assert (len(set(ends.tolist())) == 1) == (votes == 0)
    loss, _ = task.loss(again)
    assert torch.isfinite(loss)


def test_frozen_vectors_are_stored_once_and_come_back(
    tiny_config: LambadaConfig, vectors_file: Path, tmp_path: Path
) -> None:
    config = replace(tiny_config, vectors=vectors_file, validation_passages=4)
    train(LambadaRun(lambada=config, loop=LOOP, out=tmp_path))
    name = "embedding.weight"
    assert name not in read_tensors(tmp_path / "best.safetensors")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert not any(name in key for part in ("network", "average") for key in state[part])
    network = load_symbol_network(tmp_path / "best.safetensors")
    words = [line.split()[0] for line in vectors_file.read_text().splitlines()]
    row = vectors_file.read_text().splitlines()[words.index("gus")].split()[1:]
    vocabulary = json.loads((tmp_path / "vocabulary.json").read_text())
    at = FIRST + vocabulary["words"].index("gus")
    torch.testing.assert_close(network.embedding.weight[at], torch.tensor([*map(float, row)]))
    symbols = np.array([[at, 2]])
    outputs = predict(load_any(tmp_path / "best.safetensors"), symbols)
    assert outputs.shape == (1, 2, 3)
    (tmp_path / "vectors.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"vectors\.safetensors"):
        load_symbol_network(tmp_path / "best.safetensors")
