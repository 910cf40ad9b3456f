"""Prose becomes tokens, novels and passages, as in LAMBADA's files."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from training.lambada.novels import (
    Novels,
    TextError,
    is_collection,
    paragraphs,
    read_novels,
    sentence_starts,
    tokenise,
)
from training.lambada.passages import (
    CutConfig,
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
    words_by_frequency,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('"What can I say?" Ellis said.', "`` What can I say ? '' Ellis said ."),
        ("I don't know; she'd said it's Anne's.", "I do n't know ; she 'd said it 's Anne 's ."),
        ("He said: \"'Stop,' he cried.\"", "He said : `` ` Stop , ' he cried . ''"),
        ("Mr. Smith--a well-known man--left...", "Mr. Smith -- a well-known man -- left ..."),
        ("at 9.30 o'clock", "at 9.30 o'clock"),
    ],
)
def test_punctuation_quotes_and_contractions(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split()


def test_paragraphs_have_straight_quotes_and_end_in_punctuation() -> None:
    text = "CHAPTER I\n\n“Oh!” said _Anne_—then\nleft.\n\nTHE END\n\n“Don’t go!”\n"
    assert [" ".join(tokens) for tokens in paragraphs(text)] == [
        "`` Oh ! '' said Anne -- then left .",
        "`` Do n't go ! ''",
    ]


def test_sentences_end_where_the_next_one_begins() -> None:
    tokens = tokenise('"What?" he said. "No." She left! "Why?" Mr. Low asked')
    starts = sentence_starts(tokens)
    ends = [*starts[1:], len(tokens)]
    assert [" ".join(tokens[a:b]) for a, b in zip(starts, ends, strict=True)] == [
        "`` What ? '' he said .",
        "`` No . ''",
        "She left !",
        "`` Why ? ''",
        "Mr. Low asked",
    ]


FIRST = 'The dog saw Anne. "Rain," said Anne. The rain fell on the dog.\n\nThe end\n'
SECOND = "The rain fell. Soon May saw the rain.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "novels"
    (path / "one").mkdir(parents=True)
    (path / "one" / "a.txt").write_text(FIRST)
    (path / "one" / "b.txt").write_text(SECOND)
    (path / "notes.md").write_text("Not a novel. At all.")
    return path


def test_text_sentences_books_and_names(folder: Path) -> None:
    novels = read_novels(folder)
    sentences = np.split(novels.text, novels.starts[1:])
    assert [" ".join(novels.words[at] for at in part) for part in sentences] == [
        "the dog saw anne .",
        "`` rain , '' said anne .",
        "the rain fell on the dog .",
        "the rain fell .",
        "soon may saw the rain .",
    ]
    assert novels.books.tolist() == [0, 19]
    assert {w for w, name in zip(novels.words, novels.names, strict=True) if name} == {
        "anne",
        "may",
    }
    assert (np.diff(novels.counts) <= 0).all()
    assert dict(zip(novels.words, novels.counts.tolist(), strict=True))["rain"] == 4


def test_archives_hold_the_same(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "novels.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder / "one", "one")
    assert is_collection(path)
    assert is_collection(folder)
    novels = read_novels(path)
    assert novels.words == read_novels(folder).words
    assert novels.text.tolist() == read_novels(folder).text.tolist()


def test_what_is_no_novel_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.tar.xz").write_bytes(b"not an archive")
    with pytest.raises(TextError, match="cannot read"):
        read_novels(tmp_path / "bad.tar.xz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TextError, match="holds no prose"):
        read_novels(tmp_path / "empty")


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
