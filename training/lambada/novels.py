"""Reads novels as tokens and sentences, tokenised like LAMBADA's files.

LAMBADA is tokenised like the Penn Treebank: quotation marks are `` and '' (single quotation marks
are ` and '), contractions are split (do n't, it 's), and punctuation is separate. LAMBADA's files
are in lower case. Here tokens preserve their case, which distinguishes names from other words.
"""

import lzma
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.arrays import I64, Bools

OPENING, CLOSING = ("``", "`"), ("''", "'")
TERMINAL = (".", "?", "!")

_STRAIGHT = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "_": "", "—": "--"})
_PARAGRAPH = re.compile(r"\n\s*\n")
_TOKEN = re.compile(
    r"""
    (?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Capt|Col|Gen|Lt|Sgt|Rev|Hon)\.  # abbreviations keep their stop
    | \.\.+ | --+
    | [^\W_]+ (?: [-'.] [^\W_]+ )* '?  # words, with hyphens, apostrophes and stops within
    | \S
    """,
    re.VERBOSE,
)
_CONTRACTION = re.compile(r"(?i)(.+?)(n't|'(?:s|m|d|ll|re|ve))")


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the tokens of each paragraph that ends with a full stop, question mark or exclamation
    mark, apart from closing quotation marks. Headings do not."""
    for paragraph in _PARAGRAPH.split(text.translate(_STRAIGHT)):
        tokens = tokenise(paragraph)
        closed = [token for token in tokens[-3:] if token not in CLOSING]
        if closed and closed[-1] in TERMINAL:
            yield tokens


def tokenise(text: str) -> list[str]:
    """Return the tokens of a text, which preserve their case. Straight quotation marks become
    opening or closing quotation marks."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(text):
        token, at = match[0], match.start()
        if token in ('"', "'"):
            opens = at == 0 or text[at - 1].isspace() or text[at - 1] in "([-\"'"
            single = token == "'"
            tokens.append((OPENING if opens else CLOSING)[single])
            continue
        quote = token.endswith("'") and len(token) > 1
        word = token.removesuffix("'") if quote else token
        contraction = _CONTRACTION.fullmatch(word)
        tokens += contraction.groups() if contraction else (word,)
        if quote:
            tokens.append("'")
    return tokens


def sentence_starts(tokens: list[str]) -> list[int]:
    """Return the index of the first token of each sentence in a paragraph; the first is 0. A
    sentence ends with a full stop, question mark or exclamation mark and the closing quotation
    marks after it, unless the next word is in lower case ("What?" he asked)."""
    starts = [0]
    for at in range(1, len(tokens)):
        before = at - 1
        while before > 0 and tokens[before] in CLOSING:
            before -= 1
        ended = tokens[before] in TERMINAL and tokens[at] not in (*CLOSING, *TERMINAL)
        if ended and (tokens[at] in OPENING or not tokens[at][0].islower()):
            starts.append(at)
    return starts


ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
NOVELS_OF_A_NAME = 4  # a name in at least this many novels is common


class TextError(ValueError):
    """Text, passages or word vectors are missing or have an unexpected format."""


@dataclass(frozen=True)
class Novels:
    """All novels, concatenated, in lower case."""

    words: tuple[str, ...]  # distinct words, most frequent first
    counts: I64  # (words,), number of occurrences
    names: Bools  # (words,), true if a word is mostly capitalised within sentences
    text: NDArray[np.int32]  # (tokens,), indexes into `words`
    starts: I64  # positions in `text` at which sentences start, ascending
    books: I64  # positions in `text` at which novels start

    def shared_words(self) -> tuple[list[str], list[str]]:
        """Return the words that probably occur in other novels too, most frequent first, and the
        common names.

        Shared words exclude names that occur in fewer than half of the novels. Numbered symbols
        replace them, so that a network learns how names are used, not facts about one character.
        Common names occur in at least NOVELS_OF_A_NAME novels. Rarer names are treated like unknown
        words, because most names of other novels are unknown as well.
        """
        novels = [np.unique(novel) for novel in np.split(self.text, self.books[1:])]
        spread = np.bincount(np.concatenate(novels), minlength=len(self.words))
        shared = ~self.names | (2 * spread >= len(self.books))
        common = self.names & (spread >= NOVELS_OF_A_NAME)
        words, names = ([self.words[at] for at in np.flatnonzero(m)] for m in (shared, common))
        return words, names


def is_collection(path: Path) -> bool:
    """Return True if a path contains novels (a folder or an archive). Other files contain one
    passage per line."""
    return path.is_dir() or path.name.endswith(ARCHIVES)


def read_novels(path: Path) -> Novels:
    """Read novels. Raises TextError if there are none or the archive is corrupt."""
    index: dict[str, int] = {}
    text: list[int] = []
    starts: list[int] = []
    books: list[int] = []
    within: Counter[int] = Counter()  # number of occurrences of each word within sentences
    capital: Counter[int] = Counter()  # how many of these occurrences are capitalised
    for novel in _texts(path):
        begin = len(text)
        for tokens in paragraphs(novel):
            first = set(sentence_starts(tokens))
            starts += (len(text) + start for start in sorted(first))
            # The word after an opening quotation mark starts a sentence as well.
            for at, token in enumerate(tokens):
                word = index.setdefault(token.lower(), len(index))
                text.append(word)
                if at not in first and tokens[at - 1][0] not in "`'":
                    within[word] += 1
                    capital[word] += token[0].isupper()
        if len(text) > begin:  # files without prose are not novels
            books.append(begin)
    if not text:
        raise TextError(f"no prose in {path}: expected .txt files of complete sentences")
    counts = np.bincount(text, minlength=len(index))
    order = np.argsort(-counts, kind="stable")
    words = list(index)
    return Novels(
        words=tuple(words[at] for at in order),
        counts=counts[order],
        names=np.array([2 * capital[at] > within[at] and len(words[at]) > 1 for at in order]),
        text=np.argsort(order).astype(np.int32)[text],
        starts=np.array(starts, dtype=np.int64),
        books=np.array(books, dtype=np.int64),
    )


def _texts(path: Path) -> Iterator[str]:
    """Yield the contents of the .txt files of a folder, sorted by path, or of an archive."""
    if path.is_dir():
        for file in sorted(path.rglob("*.txt")):
            yield file.read_text(encoding="utf-8", errors="replace")
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None and member.name.endswith(".txt"):
                    yield content.read().decode("utf-8", errors="replace")
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise TextError(f"cannot read {path}: {error}") from error
