"""Tests of LAMBADA in the training loop, and of the command that evaluates a run."""

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
from tests.commands import run
from training.lambada.evaluate import frequent_word, main
from training.lambada.novels import read_novels
from training.lambada.task import LambadaConfig, LambadaTask
from training.lambada.words import FIRST, corpus_vectors
from training.loop.loop import LoopConfig
from training.loop.symbol_losses import PADDING
from training.presets import LambadaRun
from training.run import train

LOOP = LoopConfig(steps=12, learning_rate=0.01, average=0.5, log_steps=4, bfloat16=False)


def make_task(config: LambadaConfig, folder: Path) -> LambadaTask:
    torch.manual_seed(3)
    return LambadaTask(config, folder)


def test_a_network_learns_and_is_evaluated(tiny_config: LambadaConfig, tmp_path: Path) -> None:
    task = make_task(tiny_config, tmp_path / "fresh")
    before = task.validate(task.network)["accuracy"]
    out, loop = tmp_path / "run", replace(LOOP, steps=160, average=0.9)
    after = train(LambadaRun(lambada=tiny_config, loop=loop, out=out))["accuracy"]
    assert before < 0.7
    assert after > 0.95
    data = tmp_path / "test.txt"
    lines = tiny_config.train.read_text().splitlines()[:19]
    data.write_text("\n".join([*lines, "ada said nothing to bea"]) + "\n")
    status, printed, _ = run(main, out, "--data", data, "--weights", "last")
    assert status == 0
    assert "| 20 passages | right |" in printed
    assert "| upper bound: answer in the passage | 95.00 % |" in printed
    card = json.loads((out / "best.json").read_text())
    (out / "best.json").write_text(json.dumps({**card, "name": "sorting"}))
    for folder, passages, message in (
        (out, tmp_path / "none.txt", "No such file"),
        (tmp_path, data, "the run has not saved these weights yet"),
        (out, data, "was trained on 'sorting', not on lambada"),
    ):
        status, _, error = run(main, folder, "--data", passages)
        assert status == 1
        assert message in error


def test_the_frequent_word_baseline_ignores_punctuation() -> None:
    passages = [
        "the owl . the cat . owl".split(),
        "the dog , dog , the , dog".split(),  # `the` and `dog` occur twice before the answer.
        "the end came fast".split(),  # The answer is not in the passage.
    ]
    assert frequent_word(passages, common=0) == 0
    assert frequent_word(passages, common=1) == pytest.approx(2 / 3)


@pytest.mark.parametrize("votes", [0, 3])
def test_batches_depend_on_seed_and_step_only(
    tiny_config: LambadaConfig, tmp_path: Path, votes: int
) -> None:
    config = replace(tiny_config, votes=votes)
    task = make_task(config, tmp_path)
    expected = next(islice(task.batches(seed=2), 25, None))
    batch = next(task.batches(seed=2, step=25))
    assert (batch.inputs == expected.inputs).all()
    assert (batch.targets == expected.targets).all()
    assert batch.inputs.shape == (16, 32)
    ends = (batch.inputs != PADDING).cumsum(axis=1).argmax(axis=1)
    assert (len(set(ends.tolist())) == 1) == (votes == 0)
    loss, _ = task.loss(batch)
    assert torch.isfinite(loss)


def test_corpus_vectors_initialise_the_embedding(
    novels_folder: Path, tiny_config: LambadaConfig, tmp_path: Path
) -> None:
    config = replace(tiny_config, train=novels_folder, length=128, corpus_vectors=True)
    task = LambadaTask(config, tmp_path / "run")
    expected = corpus_vectors(
        read_novels(novels_folder), task.vocabulary.words, config.rse.maps, deviation=0.25
    )
    assert expected.std() == pytest.approx(0.25, rel=1e-3)
    weight = task.network.get_parameter("embedding.weight")
    torch.testing.assert_close(weight[FIRST:], torch.from_numpy(expected))


def test_frozen_vectors_are_stored_once(
    tiny_config: LambadaConfig, vectors_file: Path, tmp_path: Path
) -> None:
    config = replace(tiny_config, vectors=vectors_file, validation_passages=4)
    train(LambadaRun(lambada=config, loop=LOOP, out=tmp_path))
    name = "embedding.weight"
    assert name not in read_tensors(tmp_path / "best.safetensors")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert not any(name in key for part in ("network", "average") for key in state[part])
    network = load_symbol_network(tmp_path / "best.safetensors")
    rows = {word: row for word, *row in map(str.split, vectors_file.read_text().splitlines())}
    vocabulary = json.loads((tmp_path / "vocabulary.json").read_text())
    symbol = FIRST + vocabulary["words"].index("gus")
    expected = torch.tensor([*map(float, rows["gus"])])
    torch.testing.assert_close(network.embedding.weight[symbol], expected)
    outputs = predict(load_any(tmp_path / "best.safetensors"), np.array([[symbol, 2]]))
    assert outputs.shape == (1, 2, 3)
    (tmp_path / "vectors.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"vectors\.safetensors"):
        load_symbol_network(tmp_path / "best.safetensors")


def test_resumed_run_needs_no_file_of_vectors(tmp_path: Path) -> None:
    config = LambadaConfig(train=tmp_path, validation=tmp_path / "dev", vectors=tmp_path / "gone")
    assert "--lambada.vectors" in LambadaRun(lambada=config).reads()
    assert "--lambada.vectors" not in LambadaRun(lambada=config, resume=True).reads()
