"""Word vectors in fastText's and GloVe's formats."""

from pathlib import Path

import numpy as np
import pytest

from training.lambada.text.novels import TextError
from training.lambada.words.embeddings import read_vectors


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_both_formats_hold_the_same(tmp_path: Path) -> None:
    body = "the 0.5 -1 2\nowl 1 2 3.5\n"
    glove = read_vectors(write(tmp_path / "glove.txt", body))
    fasttext = read_vectors(write(tmp_path / "fast.vec", "2 3\n" + body.replace("\n", " \n")))
    for vectors in (glove, fasttext):
        assert vectors.words == ("the", "owl")
        assert vectors.vectors.tolist() == [[0.5, -1, 2], [1, 2, 3.5]]
        assert vectors.vectors.dtype == np.float32


def test_words_may_be_numbers_and_come_twice(tmp_path: Path) -> None:
    text = "the 1 2\n1999 5 6\nthe 7 8\nnan\u00a0x 9 10\n"
    vectors = read_vectors(write(tmp_path / "glove.txt", text))
    assert vectors.words == ("the", "1999", "nan\u00a0x")
    assert vectors.vectors[:, 0].tolist() == [1, 5, 9]


def test_only_so_many_words_are_read(tmp_path: Path) -> None:
    text = "3 1\na 1\nb 2\nnot a vector\n"
    assert read_vectors(write(tmp_path / "fast.vec", text), most=2).words == ("a", "b")


def test_special_symbols_stand_before_the_words(tmp_path: Path) -> None:
    rows = "".join(f"w{n} {n} {10 * n}\n" for n in range(50))
    vectors = read_vectors(write(tmp_path / "glove.txt", rows))
    for released in (True, False):
        table = vectors.table(first=4, released=released)
        assert table.shape == (54, 2)
        assert (table[0] == 0).all()
        assert (table[4:] == vectors.vectors).all()
        assert len(np.unique(table[1:4])) == 6
        assert ((table[1:4] >= 0) & (table[1:4] < 1)).all() == released


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word vectors"),
        ("the 1 2 3\nowl 1 2\n", "line 2: 2 numbers, expected a word and 3"),
        ("2 3\nthe 1 2 3 4\n", "line 2: 4 numbers, expected a word and 3"),
        ("once upon a time\n", "line 1: not a word and its vector"),
        ("the 1 nan\n", "line 1: a vector that is not finite"),
    ],
)
def test_what_is_no_file_of_vectors_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        read_vectors(write(tmp_path / "vectors.txt", text))


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"cannot read .*: No such file"):
        read_vectors(tmp_path / "missing.vec")
    (tmp_path / "binary.bin").write_bytes(b"\xff\xfe\xba")
    with pytest.raises(TextError, match="not a text file"):
        read_vectors(tmp_path / "binary.bin")
