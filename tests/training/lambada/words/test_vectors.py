"""Word vectors trained on novels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from training.lambada.task import LambadaConfig, LambadaTask
from training.lambada.text.novels import read_novels
from training.lambada.text.passages import APART, CutConfig, cut_passages
from training.lambada.words.vectors import corpus_vectors

NOVEL = (
    "The old king saw the dog. Then Anne ran, and the dog ran far from the house with Anne. "
    "The king called his dog. Then Anne called the king, and he ran. "
)


@pytest.fixture
def novels_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "novels"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.txt").write_text(20 * NOVEL)
    return folder


def test_answers_like_lambadas(novels_folder: Path) -> None:
    novels = read_novels(novels_folder)
    config = CutConfig(ends="word", context=20, longest=60, common=0, targets="lambada")
    passages = cut_passages(novels, config)
    words = [passages[at] for at in range(len(passages))]
    answers = [passage[-1] for passage in words]
    assert {"dog", "king", "anne"} <= set(answers)
    assert not set(answers) & {"ran", "called", "he"}
    for passage in words:
        assert passage[-1] in passage[:-APART]
        assert passage[-1] not in passage[-APART:-1]
        assert passage[-2] not in {".", "``"}


def test_vectors_of_like_words_are_alike(novels_folder: Path) -> None:
    novels = read_novels(novels_folder)
    words = ["dog", "king", "ran"]
    vectors = corpus_vectors(novels, words, 16, deviation=0.25)
    assert vectors.shape == (3, 16)
    assert vectors.std() == pytest.approx(0.25, rel=1e-3)
    np.testing.assert_array_equal(vectors, corpus_vectors(novels, words, 16, deviation=0.25))


def test_the_embedding_begins_with_them(
    novels_folder: Path, tiny_config: LambadaConfig, tmp_path: Path
) -> None:
    config = replace(
        tiny_config,
        train=novels_folder,
        cut=CutConfig(ends="word", context=5, longest=30, common=0),
        corpus_vectors=True,
    )
    task = LambadaTask(config, tmp_path / "run")
    expected = corpus_vectors(
        read_novels(novels_folder), task.vocabulary.words, config.rse.maps, deviation=0.25
    )
    weight = task.network.get_parameter("embedding.weight")
    torch.testing.assert_close(weight[task.vocabulary.first :], torch.from_numpy(expected))
