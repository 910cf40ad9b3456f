"""Prose becomes tokens and novels."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from training.lambada.novels import (
    is_collection,
    read_novels,
    sentence_starts,
    tokenise,
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
