"""Vocabularies, and word vectors that are read from files or trained on novels (word2vec)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from model.storage import write_atomically
from training.arrays import F32
from training.lambada.novels import Novels, TextError

UNKNOWN = 1  # symbol of unknown words without a number; 0 is padding
MASK = 2  # symbol that replaces the answer
KINDS = 4  # number of kinds of unknown words: names or not, once in a passage or more often
NUMBERED = 8  # maximum number of unknown words of each kind that are distinguished in a passage
FIRST = 3 + KINDS * NUMBERED  # symbol of the first word of the vocabulary


@dataclass(frozen=True)
class Vocabulary:
    """Symbols of words, which follow the special symbols."""

    words: tuple[str, ...]
    names: frozenset[str] = field(default=frozenset())
    """Common names. Only names without a symbol have an effect."""

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Symbol of each word."""
        return {word: at for at, word in enumerate(self.words, start=FIRST)}

    def __len__(self) -> int:
        return FIRST + len(self.words)

    def save(self, path: Path) -> None:
        """Write JSON that :meth:`load` reads."""
        lists = {"words": self.words, "names": sorted(self.names)}
        write_atomically(path, json.dumps(lists).encode())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Load a saved vocabulary. Raises OSError, and ValueError if it is invalid."""
        data = json.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(tuple(data["words"]), frozenset(data["names"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a saved vocabulary") from error


SEED = 0  # seed of the vectors of special symbols
CORPUS_SEED = 1
EPOCHS = 2
WINDOW = 5  # maximum number of words on either side that word2vec predicts


def embedding_table(vectors: F32) -> F32:
    """Return a table, (FIRST + words, dimensions), of vectors: special symbols, then words. Special
    symbols have normally distributed random vectors with the mean and standard deviation of the
    words' vectors, except padding, whose vector is zero."""
    shape = (FIRST, vectors.shape[1])
    special = np.random.default_rng(SEED).normal(vectors.mean(0), vectors.std(0), shape)
    special[0] = 0
    return np.concatenate([special.astype(np.float32), vectors])


def read_vectors(path: Path, max_words: int = 0) -> tuple[tuple[str, ...], F32]:
    """Read the first ``max_words`` words of a file (0 means all) and their vectors, (words,
    dimensions). A repeated word counts once.

    A line has a word, which may contain spaces, and its numbers, separated by spaces. The first
    line of fastText's .vec files has the numbers of words and dimensions. GloVe's files have no
    such line. Raises OSError, and TextError for other formats.
    """
    vectors: dict[str, F32] = {}
    number = dimensions = 0
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, 1):
                dimensions = dimensions or line.rstrip().count(" ")
                word, *values = line.rstrip().rsplit(" ", dimensions)
                if number == 1 and dimensions == 1:
                    dimensions = 0  # the header of fastText's files
                    continue
                if len(values) < dimensions:
                    raise ValueError(f"{len(values)} numbers instead of {dimensions}")
                vectors.setdefault(word, np.array(values, np.float32))
                if max_words and len(vectors) == max_words:
                    break
    except ValueError as error:
        raise TextError(f"{path}, line {number}: not a word vector: {error}") from error
    if not vectors:
        raise TextError(f"{path} has no word vectors")
    table = np.stack(list(vectors.values()))
    if not table.size or not np.isfinite(table).all():
        raise TextError(f"{path} has word vectors that are empty or not finite")
    return tuple(vectors), table


@dataclass(frozen=True)
class _Sentences:
    """Sentences as lists of words. They can be iterated several times, as gensim requires."""

    novels: Novels

    def __iter__(self) -> Iterator[list[str]]:
        words = self.novels.words
        for sentence in np.split(self.novels.text, self.novels.starts[1:]):
            yield [words[word] for word in sentence]


def corpus_vectors(novels: Novels, words: Sequence[str], dimensions: int, deviation: float) -> F32:
    """Return skip-gram vectors (Mikolov et al. 2013), (words, dimensions), which are the same in
    every run and have the standard deviation ``deviation``. words: words of the novels."""
    from gensim.models import Word2Vec  # takes seconds to import

    index = {word: at for at, word in enumerate(novels.words)}
    model = Word2Vec(
        vector_size=dimensions,
        window=WINDOW,
        sg=1,
        min_count=1,
        workers=1,
        seed=CORPUS_SEED,
        epochs=EPOCHS,
    )
    model.build_vocab_from_freq({word: int(novels.counts[index[word]]) for word in words})
    # gensim ignores words that are not in its vocabulary.
    model.train(_Sentences(novels), total_examples=len(novels.starts), epochs=EPOCHS)
    vectors: F32 = model.wv[list(words)]
    vectors -= vectors.mean(axis=0)
    return vectors * (deviation / vectors.std())
