"""Passages: some sentences of context and a target sentence, whose last word is the answer.

They are read from LAMBADA's files, one a line, or cut from novels in the way LAMBADA was made
(Paperno et al. 2016): the fewest whole sentences of at least 50 words as the context, then the
target sentence up to its last word.
"""

import logging
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from training.lambada.novels import CLOSING, TERMINAL, Novels, TextError

logger = logging.getLogger(__name__)

DETERMINERS = frozenset(
    "the a an his her my your their our its this that these those no some any every".split()
)
NOUN_SHARE = 0.15
"""A word is a noun if at least this share of its occurrences follows a determiner."""
APART = 12


def nouns(novels: Novels) -> NDArray[np.bool_]:
    """(words,) whether each is a noun by this rule, which passes some adjectives too."""
    determiner = np.array([word in DETERMINERS for word in novels.words])
    follows = novels.text[1:][determiner[novels.text[:-1]]]
    after = np.bincount(follows, minlength=len(novels.words))
    return after >= NOUN_SHARE * novels.counts


def like_lambada(novels: Novels, previous: NDArray[np.int64], common: int) -> NDArray[np.bool_]:
    """(tokens,) whether each would make an answer like LAMBADA's.

    The rule follows the development passages. Of their answers, where they stand in the passage,
    more than half are names and most others nouns; nine of ten last occurred 16 words before or
    earlier; hardly any begins a sentence or follows an opening quotation mark. So in training

    - the answer is a name, or a noun beyond the most frequent words;
    - it last occurred at least APART words before;
    - the word before it is a word or a comma.

    previous: (tokens,) where each token occurred last before; common: most frequent words that
    are excluded unless they are names.
    """
    words = nouns(novels) & ~novels.names
    words[:common] = False
    leads_on = np.array([word[0].isalpha() or word == "," for word in novels.words])
    apart = np.arange(len(novels.text)) - previous >= APART
    inside = np.append(False, leads_on[novels.text[:-1]])
    return (novels.names | words)[novels.text] & apart & inside


LONGEST = 4096
"""Words of a passage; longer lines are an error."""
PAUSES = (",", ";", ":", "--")

Cut = Literal["sentence", "clause", "word"]


@dataclass(frozen=True)
class Passages:
    """Many passages as stretches of one text, which may overlap."""

    words: tuple[str, ...]
    """The distinct ones."""
    text: NDArray[np.int32]
    """(tokens,) indices into `words`."""
    begin: NDArray[np.int64]
    """(passages,) index of each one's first word in `text`."""
    answer: NDArray[np.int64]
    """(passages,) index of each one's last word in `text`."""

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, index: int) -> list[str]:
        """The words of a passage, the last one being the answer."""
        part = self.text[self.begin[index] : self.answer[index] + 1]
        return [self.words[word] for word in part]


@dataclass(frozen=True)
class CutConfig:
    """Which passages are cut from novels."""

    ends: Cut = "sentence"
    """Where a passage may end: at the last word of a sentence, as in LAMBADA, of a clause too, or
    anywhere, which gives seven times as many."""
    context: int = 50
    """Words before the target sentence, at least; rounded up to whole sentences."""
    longest: int = 200
    """Words of a passage, at most; fewer if the network has fewer positions."""
    common: int = 300
    """This many of the most frequent words are excluded as answers: they can be guessed from the
    last sentence alone, and such passages were removed from LAMBADA."""
    targets: Literal["any", "lambada"] = "any"
    """Every other word may be an answer, or only those that look like LAMBADA's, by the rule of
    :func:`like_lambada`."""

    def __post_init__(self) -> None:
        if not 1 <= self.context <= self.longest:
            raise ValueError(f"context of {self.context} words in passages of {self.longest}")


def read_passages(path: Path) -> list[list[str]]:
    """A file of LAMBADA: one tokenised passage a line. Raises OSError or TextError."""
    return [line.split() for line in _lines(path)]


def read_training_passages(path: Path, longest: int) -> Passages:
    """A file in the form of LAMBADA's as training passages.

    Passages without their answer or longer than `longest` words are left out
    (released code). Raises OSError or TextError.
    """
    index: dict[str, int] = {}
    text, begin, answer = array("i"), array("q"), array("q")
    dropped = 0
    for line in _lines(path):
        words = line.split()
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


def cut_passages(novels: Novels, config: CutConfig) -> Passages:
    """Every passage of novels whose answer occurs before it. Raises TextError without any."""
    text, starts = novels.text, novels.starts
    place = np.arange(len(text))
    sentence = np.searchsorted(starts, place, side="right") - 1
    # The last sentence start that leaves enough context is where the passage begins.
    first = np.searchsorted(starts, starts - config.context, side="right") - 1
    book = np.searchsorted(novels.books, starts, side="right")
    whole = (first >= 0) & (book[first] == book)
    begin = starts[np.maximum(first, 0)][sentence]
    answers = np.array([word[0].isalpha() for word in novels.words])
    previous = _previous(text)
    if config.targets == "lambada":
        allowed = like_lambada(novels, previous, config.common)
    else:
        answers[: config.common] = False
        allowed = answers[text]
    chosen = (
        whole[sentence]
        & answers[text]
        & allowed
        & (previous >= begin)
        & (place - begin < config.longest)
        & _may_end(novels, config.ends)
    )
    if not chosen.any():
        raise TextError("the novels hold no passage whose last word occurs before it")
    return Passages(novels.words, text, begin[chosen], place[chosen])


NAMES = ("ada", "bea", "cid", "dot", "eli", "fay", "gus", "hal")


def made_up_passages(rng: np.random.Generator, count: int) -> str:
    """Lines for a first try without any data: of three people, the one that is called answers."""
    lines = []
    for _ in range(count):
        people = rng.permutation(NAMES)[:3]
        called = people[rng.integers(3)]
        lines.append(
            f"{people[0]} came in . {people[1]} sat down . {people[2]} looked up . "
            f"`` {called} ! '' they called . `` yes ? '' said {called}\n"
        )
    return "".join(lines)


def words_by_frequency(passages: Passages) -> list[str]:
    """The distinct words, most frequent first."""
    counts = np.bincount(passages.text, minlength=len(passages.words))
    return [passages.words[at] for at in np.argsort(-counts, kind="stable") if counts[at]]


def most_frequent(passages: Sequence[Sequence[str]], count: int) -> set[str]:
    counts = Counter(word for words in passages for word in words)
    return {word for word, _ in counts.most_common(count)}


def _may_end(novels: Novels, ends: Cut) -> NDArray[np.bool_]:
    """(tokens,) whether a passage may end with each token."""
    if ends == "word":
        return np.ones(len(novels.text), dtype=bool)
    marks = TERMINAL if ends == "sentence" else (*TERMINAL, *PAUSES, *CLOSING)
    ending = np.array([word in marks for word in novels.words])[novels.text]
    return np.append(ending[1:], False)


def _previous(text: NDArray[np.int32]) -> NDArray[np.int64]:
    """(tokens,) where each token occurred last before, or -1."""
    order = np.argsort(text, kind="stable")
    again = text[order][1:] == text[order][:-1]
    previous = np.full(len(text), -1, dtype=np.int64)
    previous[order[1:][again]] = order[:-1][again]
    return previous


def _lines(path: Path) -> Iterator[str]:
    """Lines that are passages. Raises OSError, and TextError for anything else in the file."""
    empty = True
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            words = len(line.split())
            if words == 0:
                continue
            if not 2 <= words <= LONGEST:
                raise TextError(
                    f"{path}, line {number}: {words} words; a passage has 2 to {LONGEST}, "
                    "one passage a line"
                )
            empty = False
            yield line
    if empty:
        raise TextError(f"{path} holds no passages")
