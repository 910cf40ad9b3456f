"""Novels become passages, as in LAMBADA's files."""

from pathlib import Path

import pytest

from training.lambada.novels import Novels, TextError, read_novels
from training.lambada.passages import (
    CutConfig,
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
    words_by_frequency,
)

NOVEL = (
    "It was late. Anne had lost her lantern in the wood. The path was dark, and the owl cried. "
    'She thought of the lantern. "Who goes there?" said the owl, and Anne saw a lantern. '
    "Nobody spoke."
)


@pytest.fixture
def novels(tmp_path: Path) -> Novels:
    (tmp_path / "a.txt").write_text(NOVEL)
    (tmp_path / "b.txt").write_text("Anne came. Then the owl cried for Anne.")
    return read_novels(tmp_path)


def texts(passages: Passages) -> list[str]:
    return [" ".join(passages[at]) for at in range(len(passages))]


def test_contexts_are_the_fewest_whole_sentences_of_one_book(novels: Novels) -> None:
    config = CutConfig(context=12, longest=40, common=0)
    assert texts(cut_passages(novels, config)) == [
        "anne had lost her lantern in the wood . the path was dark , and the owl cried . "
        "she thought of the lantern",
        "the path was dark , and the owl cried . she thought of the lantern . "
        "`` who goes there ? '' said the owl , and anne saw a lantern",
    ]


def test_answers_may_end_clauses_or_stand_anywhere(novels: Novels) -> None:
    sentences, clauses, words = (
        texts(cut_passages(novels, CutConfig(ends=ends, context=8, longest=40, common=0)))
        for ends in ("sentence", "clause", "word")
    )
    assert set(sentences) < set(clauses) < set(words)
    assert any(text.endswith("said the owl") for text in clauses)
    assert any(text.endswith("thought of the") for text in words)
    assert all(text.split()[-1] in text.split()[:-1] for text in words)


def test_common_words_are_not_answers_and_passages_have_a_maximum_length(novels: Novels) -> None:
    every = texts(cut_passages(novels, CutConfig(ends="word", context=8, longest=40, common=0)))
    config = CutConfig(ends="word", context=8, longest=30, common=3)
    some = texts(cut_passages(novels, config))
    assert set(some) < set(every)
    assert [text.split()[-1] for text in some] == ["owl", "and"]
    assert [text.split()[-1] for text in every] == "the the the the owl and lantern".split()
    with pytest.raises(TextError, match="no passage whose last word"):
        cut_passages(novels, CutConfig(context=40, longest=50))


def test_training_files_lose_what_teaches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("a b a\n\nno answer here\nx y z x y z x\n`` b '' b\n")
    passages = read_training_passages(path, longest=4)
    assert texts(passages) == ["a b a", "`` b '' b"]
    assert words_by_frequency(passages)[:2] == ["b", "a"]
    assert read_passages(path)[1] == ["no", "answer", "here"]


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
        read_passages(path)
