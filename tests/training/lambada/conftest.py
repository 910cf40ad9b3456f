"""Fixtures of the LAMBADA tests: passages, novels and word vectors."""

from pathlib import Path

import numpy as np
import pytest

from model.config import RSEConfig
from training.lambada.passages import NAMES, synthetic_passages
from training.lambada.task import LambadaConfig


@pytest.fixture(scope="session")
def passages_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of 300 synthetic passages in LAMBADA's format."""
    path = tmp_path_factory.mktemp("lambada") / "passages.txt"
    path.write_text(synthetic_passages(np.random.default_rng(1), 300))
    return path


@pytest.fixture(scope="session")
def novels_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of four novels that repeat a few sentences."""
    folder = tmp_path_factory.mktemp("novels")
    novel = (
        "The old king saw the dog. Then Anne ran, and the dog ran far from the house with Anne. "
        "The king called his dog. Then Anne called the king, and he ran. "
    )
    for name in "abcd":
        (folder / f"{name}.txt").write_text(20 * novel)
    return folder


@pytest.fixture(scope="session")
def vectors_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Word vectors of 12 dimensions in GloVe's format, for all words of the passages except one."""
    rng = np.random.default_rng(2)
    words = [*NAMES, *"came in sat down looked up they called said . `` '' ?".split()]
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    rows = (f"{word} {' '.join(map(str, rng.normal(size=12).round(3)))}\n" for word in words)
    path.write_text("".join(rows))
    return path


@pytest.fixture(scope="session")
def tiny_config(passages_file: Path) -> LambadaConfig:
    """Configuration of a network that learns these passages in seconds."""
    return LambadaConfig(
        train=passages_file,
        validation=passages_file,
        rse=RSEConfig(maps=16, blocks=1, dropout=0.0),
        length=32,
        objective="sum",
        batch_size=16,
        votes=0,
        word_dropout=0.0,
        validation_passages=60,
    )
