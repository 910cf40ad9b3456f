"""Novels as arrays of words, from a folder or an archive of plain-text files."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.lambada.text.tokens import paragraphs, sentence_starts

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


class TextError(ValueError):
    """Text, passages or word vectors that are missing or not what they should be."""


@dataclass(frozen=True)
class Novels:
    """Every novel one after the other, in lower case."""

    words: tuple[str, ...]
    """The distinct ones, most frequent first."""
    counts: NDArray[np.int64]
    """(words,) how often each occurs."""
    names: NDArray[np.bool_]
    """(words,) whether a word stands mostly with a capital where no sentence begins."""
    text: NDArray[np.int32]
    """(tokens,) indices into `words`."""
    starts: NDArray[np.int64]
    """Where sentences begin in `text`, in rising order."""
    books: NDArray[np.int64]
    """Where novels begin in `text`."""

    def spread(self) -> NDArray[np.int64]:
        """(words,) in how many novels each occurs."""
        novels = [np.unique(novel) for novel in np.split(self.text, self.books[1:])]
        return np.bincount(np.concatenate(novels), minlength=len(self.words))


def is_collection(path: Path) -> bool:
    """Whether a path holds novels (a folder or an archive) and not passages, one a line."""
    return path.is_dir() or path.name.endswith(ARCHIVES)


def read_novels(path: Path) -> Novels:
    """Raises TextError if there are none or the archive is damaged."""
    index: dict[str, int] = {}
    text: list[int] = []
    starts: list[int] = []
    books: list[int] = []
    within: Counter[int] = Counter()  # occurrences where no sentence begins
    capital: Counter[int] = Counter()  # those of them with a capital
    for novel in _texts(path):
        books.append(len(text))
        for tokens in paragraphs(novel):
            first = set(sentence_starts(tokens))
            starts += (len(text) + start for start in sorted(first))
            # The word behind an opening quotation mark begins a sentence as well.
            for at, token in enumerate(tokens):
                word = index.setdefault(token.lower(), len(index))
                text.append(word)
                if at not in first and tokens[at - 1][0] not in "`'":
                    within[word] += 1
                    capital[word] += token[0].isupper()
    if not text:
        raise TextError(f"{path} holds no prose: .txt files of whole sentences are expected")
    flat = np.array(text, dtype=np.int32)
    counts = np.bincount(flat, minlength=len(index))
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    words = list(index)
    return Novels(
        words=tuple(words[at] for at in order),
        counts=counts[order],
        names=np.array([2 * capital[at] > within[at] and len(words[at]) > 1 for at in order]),
        text=rank[flat],
        starts=np.array(starts, dtype=np.int64),
        books=np.array(books, dtype=np.int64),
    )


def _texts(path: Path) -> Iterator[str]:
    """The .txt files of a folder or an archive, in the order of their names."""
    if path.is_dir():
        for file in sorted(path.rglob("*.txt")):
            yield file.read_text(encoding="utf-8", errors="replace")
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None and member.name.endswith(".txt"):
                    yield content.read().decode("utf-8", errors="replace")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise TextError(f"cannot read {path}: {error}") from error
