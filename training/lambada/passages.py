"""Passages: some sentences of context and a target sentence, whose last word is the answer.

They are read from LAMBADA's files, one a line, or cut from novels in the way LAMBADA was made
(Paperno et al. 2016): the fewest whole sentences of at least CONTEXT words, then the target
sentence up to the answer, which may be any of its words that is like an answer of LAMBADA's.
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

LONGEST = 4096  # words of a passage in a file; longer lines are an error
CONTEXT, MOST = 50, 200
"""Words before the target sentence, at least, and of a passage cut from novels, at most."""
COMMON = 500  # most frequent words that are no answers unless they are names
APART = 12  # words since the answer occurred last, at least
DETERMINERS = frozenset(
    "the a an his her my your their our its this that these those no some any every".split()
)
NOUN_SHARE = 0.15  # a word is a noun if at least this share of its occurrences follows a determiner


@dataclass(frozen=True)
class Passages:
    """Many passages as stretches of one text, which may overlap."""

    words: tuple[str, ...]  # the distinct ones
    text: NDArray[np.int32]  # (tokens,) indices into `words`
    begin: I64  # (passages,) index of each one's first word in `text`
    answer: I64  # (passages,) index of each one's last word in `text`

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
    """Read training passages from a file in LAMBADA's format. Passages without their answer, or
    longer than `longest` words, are skipped (released code). Raises OSError or TextError."""
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
        raise TextError(f"no passage of {path} has its last word among those before it")
    if dropped:
        logger.info("%s: %d passages are too long or lack their answer", path, dropped)
    return Passages(
        tuple(index),
        np.frombuffer(text, np.int32),
        np.frombuffer(begin, np.int64),
        np.frombuffer(answer, np.int64),
    )


def read_passages(path: Path) -> Iterator[list[str]]:
    """Return the words of each passage of a file in LAMBADA's format, which has one passage per
    line. Raises OSError, and TextError if the file has another format."""
    empty = True
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            words = line.split()
            if words and not 2 <= len(words) <= LONGEST:
                raise TextError(
                    f"{path}, line {number}: {len(words)} words; a passage has 2 to {LONGEST}, "
                    "one passage a line"
                )
            if words:
                empty = False
                yield words
    if empty:
        raise TextError(f"{path} holds no passages")


def cut_passages(
    novels: Novels, longest: int, context: int = CONTEXT, common: int = COMMON
) -> Passages:
    """Every passage of at most `longest` words whose answer occurs before it and is like one of
    LAMBADA's. Raises TextError without any."""
    text, starts = novels.text, novels.starts
    place = np.arange(len(text))
    sentence = np.searchsorted(starts, place, side="right") - 1
    # The last sentence start that leaves enough context is where the passage begins.
    first = np.searchsorted(starts, starts - context, side="right") - 1
    book = np.searchsorted(novels.books, starts, side="right")
    whole = (first >= 0) & (book[first] == book)
    begin = starts[np.maximum(first, 0)][sentence]
    previous = _previous(text)
    chosen = (
        whole[sentence]
        & like_lambada(novels, previous, common)
        & (previous >= begin)
        & (place - begin < min(longest, MOST))
    )
    if not chosen.any():
        raise TextError("the novels hold no passage whose last word occurs before it")
    return Passages(novels.words, text, begin[chosen], place[chosen])


def like_lambada(novels: Novels, previous: I64, common: int) -> Bools:
    """Return for each token, (tokens,), whether it could be an answer in LAMBADA.

    The rule follows the development passages. Of their answers, where they stand in the passage,
    more than half are names and most others nouns; nine of ten last occurred 16 words before or
    earlier; hardly any begins a sentence or follows an opening quotation mark. So in training

    - the answer is a name, or a noun beyond the most frequent words;
    - it last occurred at least APART words before;
    - the word before it is a word or a comma.

    previous: (tokens,) where each token occurred last before.
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
    """Return lines for a first try without data: of three people, the one who is called answers."""
    lines = []
    for _ in range(count):
        people = rng.permutation(NAMES)[:3]
        called = people[rng.integers(3)]
        lines.append(
            f"{people[0]} came in . {people[1]} sat down . {people[2]} looked up . "
            f"`` {called} ! '' they called . `` yes ? '' said {called}\n"
        )
    return "".join(lines)
