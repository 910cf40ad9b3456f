"""Novels become passages, as in LAMBADA's files."""

from pathlib import Path

import pytest

from training.lambada.novels import TextError, read_novels
from training.lambada.passages import (
    APART,
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
)

NOVEL = (
    "The old king saw the dog. Then Anne ran, and the dog ran far from the house with Anne. "
    "The king called his dog. Then Anne called the king, and he ran. "
)


def texts(passages: Passages) -> list[str]:
    return [" ".join(passages[at]) for at in range(len(passages))]


def test_answers_are_like_lambadas(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text(20 * NOVEL)
    novels = read_novels(tmp_path)
    words = [text.split() for text in texts(cut_passages(novels, 60, context=20, common=0))]
    answers = {passage[-1] for passage in words}
    assert {"dog", "king", "anne"} <= answers
    assert not answers & {"ran", "called", "he"}
    for passage in words:
        assert 20 < len(passage) <= 60
        assert passage[0] in ("the", "then")
        assert passage[-2] not in {".", "``"}
        assert passage[-1] in passage[:-APART]
        assert passage[-1] not in passage[-APART:-1]
    common = novels.words.index("king") + 1
    fewer = {text.split()[-1] for text in texts(cut_passages(novels, 60, 20, common))}
    assert fewer == {"anne"} | (answers & set(novels.words[common:]))
    with pytest.raises(TextError, match="no passage whose last word"):
        cut_passages(novels, 20, context=50)


def test_training_files_lose_what_teaches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("a b a\n\nno answer here\nx y z x y z x\n`` b '' b\n")
    passages = read_training_passages(path, longest=4)
    assert texts(passages) == ["a b a", "`` b '' b"]
    assert passages.words_by_frequency()[:2] == ["b", "a"]
    assert list(read_passages(path))[1] == ["no", "answer", "here"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no passages"),
        (b"two words\none\n", "line 2: 1 words"),
        (b"\xff\xfe\x00\x01", "line 1: 1 words"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "passages.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=message):
        list(read_passages(path))
