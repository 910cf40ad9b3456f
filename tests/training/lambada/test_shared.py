"""LAMBADA's own files, real word vectors and real novels, where they lie beside the repository."""

from pathlib import Path

import numpy as np
import pytest

from training.lambada.evaluate import frequent_word, random_word
from training.lambada.passages import read_passages

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def test_passages(shared_dir: Path) -> list[list[str]]:
    path = shared_dir / "text" / "lambada" / "lambada_test_plain_text.txt"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return read_passages(path)


def test_the_test_file_and_its_baselines(test_passages: list[list[str]]) -> None:
    assert len(test_passages) == 5153
    assert max(map(len, test_passages)) == 203
    answerable = np.mean([words[-1] in words[:-1] for words in test_passages])
    assert answerable == pytest.approx(0.827, abs=0.001)
    assert random_word(test_passages) == pytest.approx(0.0166, abs=1e-4)  # Paperno et al.: 1.6 %
    assert frequent_word(test_passages) < 0.01
