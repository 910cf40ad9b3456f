"""Passages: some sentences of context and a target sentence, whose last word is the answer.

Passages are read from files in LAMBADA's format, one per line, or cut from novels by the method of
LAMBADA (Paperno et al. 2016). The context is the smallest number of complete sentences with at
least CONTEXT words. The target sentence follows, up to the answer, which is any word that could be
an answer in LAMBADA.
"""

import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.arrays import I64, Bools, Rng
from training.lambada.novels import Novels, TextError

logger = logging.getLogger(__name__)

LONGEST = 4096  # maximum number of words of a passage in a file
CONTEXT, MAX_WORDS = 50, 200
"""For passages from novels: minimum number of words before the target sentence, and maximum number
of words of a passage."""
COMMON = 500  # number of most frequent words that are answers only if they are names
APART = 12  # minimum distance, in words, from the previous occurrence of the answer
DETERMINERS = frozenset(
    "the a an his her my your their our its this that these those no some any every".split()
)
NOUN_SHARE = 0.15  # a word is a noun if at least this share of its occurrences follows a determiner


@dataclass(frozen=True)
class Passages:
    """Passages, which may overlap, as parts of one text."""

    words: tuple[str, ...]  # distinct words
    text: NDArray[np.int32]  # (tokens,) indices into `words`
    begin: I64  # (passages,) index of the first word of each passage in `text`
    answer: I64  # (passages,) index of the last word of each passage in `text`

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, index: int) -> list[str]:
        """Return the words of a passage. The last word is the answer."""
        part = self.text[self.begin[index] : self.answer[index] + 1]
        return [self.words[word] for word in part]

    def words_by_frequency(self) -> list[str]:
        counts = np.bincount(self.text, minlength=len(self.words))
        return [self.words[at] for at in np.argsort(-counts, kind="stable")]


def read_training_passages(path: Path, longest: int) -> Passages:
    """Read training passages from a file in LAMBADA's format. Passages are
    skipped if they have more than ``longest`` words, or if their last word does not occur earlier
    (released code). Raises OSError, and TextError if no passage remains or the format is wrong."""
    index: dict[str, int] = {}
    text, begin, answer = array("i"), array("q"), array("q")
    dropped = 0
    for words in read_passages(path):
        if len(words) > longest or words[-1] not in words[:-1]:
            dropped += 1
            continue
        begin.append(len(text))
        text.extend(index.setdefault(word, len(index)) for word in words)
        answer.append(len(text) - 1)
    if not begin:
        raise TextError(
            f"{path} has no passage of at most {longest} words whose last word occurs earlier"
        )
    if dropped:
        logger.info(
            "%s: skipped %d passages: too long, or the last word does not occur earlier",
            path,
            dropped,
        )
    return Passages(
        tuple(index),
        np.frombuffer(text, np.int32),
        np.frombuffer(begin, np.int64),
        np.frombuffer(answer, np.int64),
    )


def read_passages(path: Path) -> Iterator[list[str]]:
    """Yield the words of each passage of a file in LAMBADA's format, which has one passage per
    line. Raises OSError, and TextError if the file has another format or no passages."""
    empty = True
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            words = line.split()
            if words and not 2 <= len(words) <= LONGEST:
                raise TextError(
                    f"{path}, line {number}: {len(words)} words; expected one passage of 2 to "
                    f"{LONGEST} words per line"
                )
            if words:
                empty = False
                yield words
    if empty:
        raise TextError(f"{path} contains no passages")


def cut_passages(
    novels: Novels, longest: int, context: int = CONTEXT, common: int = COMMON
) -> Passages:
    """Return all passages of at most `longest` and MAX_WORDS words whose answer occurs earlier and
    could be an answer in LAMBADA. Raises TextError if there are none."""
    text, starts = novels.text, novels.starts
    position = np.arange(len(text))
    sentence = np.searchsorted(starts, position, side="right") - 1
    # A passage starts at the last sentence start with enough context after it.
    first = np.searchsorted(starts, starts - context, side="right") - 1
    book = np.searchsorted(novels.books, starts, side="right")
    complete = (first >= 0) & (book[first] == book)
    begin = starts[np.maximum(first, 0)][sentence]
    previous = _previous(text)
    selected = (
        complete[sentence]
        & like_lambada(novels, previous, common)
        & (previous >= begin)
        & (position - begin < min(longest, MAX_WORDS))
    )
    if not selected.any():
        raise TextError("the novels have no passage with an answer like those of LAMBADA")
    return Passages(novels.words, text, begin[selected], position[selected])


def like_lambada(novels: Novels, previous: I64, common: int) -> Bools:
    """Return for each token, (tokens,), True if it could be an answer in LAMBADA.

    The rule follows the development passages. Of the answers that occur in their passage, more than
    half are names, and most others are nouns. Nine of ten are at least 16 words after their
    previous occurrence. Few start a sentence or follow an opening quotation mark. An answer in
    training must therefore meet these conditions:

    - It is a name, or a noun that is not among the most frequent words.
    - It is at least APART words after its previous occurrence.
    - The token before it is a word or a comma.

    previous: position of the previous occurrence of each token, (tokens,).
    """
    determiner = np.array([word in DETERMINERS for word in novels.words])
    follows = novels.text[1:][determiner[novels.text[:-1]]]
    nouns = np.bincount(follows, minlength=len(novels.words)) >= NOUN_SHARE * novels.counts
    nouns[:common] = False
    letters = np.array([word[0].isalpha() for word in novels.words])
    leads_on = letters | np.array([word == "," for word in novels.words])
    apart = np.arange(len(novels.text)) - previous >= APART
    inside = np.append(False, leads_on[novels.text[:-1]])
    return (letters & (novels.names | nouns))[novels.text] & apart & inside


def _previous(text: NDArray[np.int32]) -> I64:
    """Return for each token, (tokens,), the position of its previous occurrence, or -1."""
    order = np.argsort(text, kind="stable")
    again = text[order][1:] == text[order][:-1]
    previous = np.full(len(text), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    return previous


NAMES = ("ada", "bea", "cid", "dot", "eli", "fay", "gus", "hal")


def synthetic_passages(rng: Rng, count: int) -> str:
    """Return synthetic passages, one per line. One of three people is called and answers."""
    lines = []
    for _ in range(count):
        people = rng.permutation(NAMES)[:3]
        called = people[rng.integers(3)]
        lines.append(
            f"{people[0]} came in . {people[1]} sat down . {people[2]} looked up . "
            f"`` {called} ! '' they called . `` yes ? '' said {called}\n"
        )
    return "".join(lines)
