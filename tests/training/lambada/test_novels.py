"""Tests of the conversion of prose to tokens, novels and passages in LAMBADA's format."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from training.lambada.novels import TextError, is_collection, read_novels, sentence_starts, tokenise
from training.lambada.passages import (
    APART,
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
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
def test_tokens_follow_the_format_of_lambada(text: str, tokens: str) -> None:
    assert tokenise(text) == tokens.split()


def test_text_is_split_into_sentences() -> None:
    tokens = tokenise('"What?" he said. "No." She left! "Why?" Mr. Low asked')
    sentences = [" ".join(part) for part in np.split(tokens, sentence_starts(tokens)[1:])]
    expected = "`` What ? '' he said .|`` No . ''|She left !|`` Why ? ''|Mr. Low asked"
    assert sentences == expected.split("|")


FIRST = 'The dog saw Anne. "Rain," said Anne. The rain fell on the dog.\n\nThe end\n'
SECOND = "The rain fell. Soon May saw the rain.\n"


def test_folders_and_archives_of_novels_are_read(tmp_path: Path) -> None:
    folder, path = tmp_path / "novels", tmp_path / "novels.tar.xz"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "a.txt").write_text(FIRST)
    (folder / "one" / "b.txt").write_text(SECOND)
    (folder / "one" / "contents.txt").write_text("No prose\n")
    (folder / "notes.md").write_text("Not a novel. At all.")
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder / "one", "one")
    assert is_collection(path)
    assert is_collection(folder)
    novels = read_novels(folder)
    sentences = np.split(novels.text, novels.starts[1:])
    assert [" ".join(novels.words[i] for i in part) for part in sentences] == [
        "the dog saw anne .",
        "`` rain , '' said anne .",
        "the rain fell on the dog .",
        "the rain fell .",
        "soon may saw the rain .",
    ]
    assert novels.books.tolist() == [0, 19]
    assert {novels.words[i] for i in np.flatnonzero(novels.names)} == {"anne", "may"}
    assert (np.diff(novels.counts) <= 0).all()
    assert novels.counts[novels.words.index("rain")] == 4
    from_archive = read_novels(path)
    assert (from_archive.words, from_archive.text.tolist()) == (novels.words, novels.text.tolist())


def test_errors_name_corrupt_archives(tmp_path: Path) -> None:
    novel, path = tmp_path / "novel.txt", tmp_path / "novels.tar.xz"
    words = np.random.default_rng(0).integers(0, 9999, 50_000)
    novel.write_text(" ".join(map(str, words)) + ".")
    with tarfile.open(path, "w:xz") as archive:
        archive.add(novel, novel.name)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + 256 * b"\xff" + content[middle + 256 :])
    with pytest.raises(TextError, match="cannot read .*novels.tar.xz"):
        read_novels(path)


def test_shared_words_occur_in_several_novels(tmp_path: Path) -> None:
    people = ["Low", "Low", "Low", "Low", "May", "May", "Day", "Day", "Fox"]
    for number, name in enumerate(people):
        (tmp_path / f"{number}.txt").write_text(f"So Mr. {name} left. Then Mr. {name} met a fox.")
    words, names = read_novels(tmp_path).shared_words()
    assert {*words[:2]} == {".", "mr."}
    assert {"mr.", "met", "left", "fox"} <= {*words}
    assert not {"low", "may", "day"} & {*words}
    assert {"mr.", "low"} == {*names}


def texts(passages: Passages) -> list[str]:
    return [" ".join(passages[i]) for i in range(len(passages))]


def test_passages_have_the_properties_of_lambada(novels_folder: Path) -> None:
    novels = read_novels(novels_folder)
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
    with pytest.raises(TextError, match="no passage with an answer"):
        cut_passages(novels, 20, context=50)


def test_unusable_training_passages_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("a b a\n\nno answer here\nx y z x y z x\n`` b '' b\n")
    passages = read_training_passages(path, longest=4)
    assert texts(passages) == ["a b a", "`` b '' b"]
    assert passages.words_by_frequency()[:2] == ["b", "a"]
    assert list(read_passages(path))[1] == ["no", "answer", "here"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "no passages"), (b"two words\none\n", "line 2: 1 words")]
)
def test_other_files_are_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "passages.txt"
    path.write_bytes(content)
    with pytest.raises(TextError, match=message):
        list(read_passages(path))
