"""Word vectors, and words as symbols."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from training.lambada.novels import TextError, read_novels
from training.lambada.reader import encode
from training.lambada.task import LambadaConfig, LambadaTask
from training.lambada.words import FIRST, Vocabulary, corpus_vectors, read_vectors


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words", "vectors"),
    [
        ("the 0.5 -1\nowl 2 3.5\n", ("the", "owl"), [[0.5, -1], [2, 3.5]]),  # GloVe's
        ("2 2\nthe 0.5 -1 \nowl 2 3.5 \n", ("the", "owl"), [[0.5, -1], [2, 3.5]]),  # fastText's
        (
            "the 1 0\n1999 2 0\na 3 0\nnot a vector\n",
            ("the", "1999", "a"),
            [[1, 0], [2, 0], [3, 0]],
        ),
    ],
)
def test_at_most_three_words_are_read_in_both_formats(
    tmp_path: Path, text: str, words: tuple[str, ...], vectors: list[list[float]]
) -> None:
    found, numbers = read_vectors(write(tmp_path / "vectors", text), most=3)
    assert found == words
    assert numbers.tolist() == vectors
    assert numbers.dtype == np.float32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no word vectors"),
        (b"the 1 2 3\nowl 1 2\n", "holds no word vectors"),
        (b"once upon a time\n", "holds no word vectors"),
        (b"the 1 nan\n", "not finite"),
    ],
)
def test_what_is_no_file_of_vectors_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "vectors").write_bytes(content)
    with pytest.raises(TextError, match=message):
        read_vectors(tmp_path / "vectors")


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


def test_the_embedding_begins_with_them(
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


WORDS = ("the", "owl", "saw")
PASSAGE = "the owl saw zed ; zed saw yan and zed".split()


def test_symbols_tell_unknown_words_apart() -> None:
    vocabulary = Vocabulary(WORDS, frozenset({"yan", "owl"}))
    encoded = encode(vocabulary, PASSAGE)
    # `and` is the first of those that occur once (3 to 10), `zed` of those that occur more often
    # (11 to 18), `yan` of the names that occur once (19 to 26); `;` is not a word.
    assert encoded.inputs.tolist() == [35, 36, 37, 11, 1, 11, 37, 19, 3, 2]
    assert encoded.targets.tolist() == [1, 1, 1, 2, 1, 2, 1, 1, 1, 1]
    assert len(vocabulary) == 38


def test_words_and_names_that_other_novels_share(tmp_path: Path) -> None:
    people = ["Low", "Low", "Low", "Low", "May", "May", "Day", "Day", "Fox"]
    for number, name in enumerate(people):
        (tmp_path / f"{number}.txt").write_text(f"So Mr. {name} left. Then Mr. {name} met a fox.")
    novels = read_novels(tmp_path)
    known, names = novels.shared_words()
    assert {*known[:2]} == {".", "mr."}
    assert {"mr.", "met", "left", "fox"} <= {*known}
    assert not {"low", "may", "day"} & {*known}
    assert {"mr.", "low"} == {*names}
