"""Words as the symbols of a network, and word vectors: from text files, or from the novels
themselves by word2vec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from model.storage import write_whole
from training.arrays import F32
from training.lambada.novels import Novels, TextError

KINDS = 4
"""Of unknown words: names or not, of each those that occur once in a passage and more often."""
NUMBERED = 8  # unknown words of each kind that are distinguished in a passage
UNKNOWN = 1
"""Symbol of any unknown word (released code), or of what is unknown and no word; 0 is padding."""


@dataclass(frozen=True)
class Vocabulary:
    """Symbols of special meaning, then one for each word.

    The released code has padding, unknown and, where it learns the embedding itself, two more
    special symbols, the second being the mask. With word vectors it has the first two alone and
    yet masks with symbol 3, which is the second word of the file.
    """

    words: tuple[str, ...]
    first: int  # symbol of the first word
    mask: int  # symbol that stands in the place of the answer
    numbered: int = 0
    """Symbols of each of the KINDS, before the first word's, for the different unknown words of
    one passage."""
    names: frozenset[str] = frozenset()  # words without symbols that are known to be names

    def __post_init__(self) -> None:
        if self.mask >= len(self):
            raise ValueError(f"{len(self.words)} words are too few: symbol {self.mask} is the mask")

    @classmethod
    def released(cls, words: Iterable[str], vectors: bool) -> Vocabulary:
        """As the released code numbers them; `vectors`: with a pre-trained embedding."""
        return cls(tuple(words), first=2 if vectors else 4, mask=3)

    @classmethod
    def clean(cls, words: Iterable[str], numbered: int, names: Iterable[str] = ()) -> Vocabulary:
        """With a separate mask, and symbols that distinguish a passage's unknown words."""
        known = tuple(words)
        others = frozenset(names).difference(known)
        return cls(known, 3 + KINDS * numbered, mask=2, numbered=numbered, names=others)

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Of each word."""
        return {word: at for at, word in enumerate(self.words, start=self.first)}

    def __len__(self) -> int:
        return self.first + len(self.words)

    def save(self, path: Path) -> None:
        """Writes JSON that :meth:`load` reads."""
        data = {"first": self.first, "mask": self.mask, "numbered": self.numbered}
        lists = {"words": self.words, "names": sorted(self.names)}
        write_whole(path, json.dumps({**data, **lists}).encode())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """As it was saved. Raises OSError."""
        data = json.loads(path.read_text(encoding="utf-8"))
        lists = {"words": tuple(data["words"]), "names": frozenset(data["names"])}
        return cls(**{**data, **lists})


SEED = 0  # of the vectors of special symbols, which no file has
CORPUS_SEED = 1
EPOCHS = 2
WINDOW = 5  # words predicted on either side


@dataclass(frozen=True)
class WordVectors:
    """A pre-trained embedding."""

    words: tuple[str, ...]
    vectors: F32  # (words, dimensions)

    def table(self, first: int, released: bool) -> F32:
        """(first + words, dimensions): the vectors behind those of `first` special symbols. Padding
        is zero. The others are random: uniform in [0, 1) as in the released code, or as large as
        the words' own."""
        rng = np.random.default_rng(SEED)
        shape = (first, self.vectors.shape[1])
        if released:
            special = rng.uniform(0, 1, shape)
        else:
            special = rng.normal(self.vectors.mean(0), self.vectors.std(0), shape)
        special[0] = 0
        return np.concatenate([special.astype(np.float32), self.vectors])


def read_vectors(path: Path, most: int = 0) -> WordVectors:
    """The first `most` words of a file and their vectors; 0 for all. A repeated word counts once.

    A line is a word and its numbers, separated by spaces. fastText's .vec begins with a line of the
    numbers of words and dimensions; GloVe's files do not. Raises OSError, and TextError for
    anything else.
    """
    vectors: dict[str, F32] = {}
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file):
                word, *values = line.rstrip().split(" ")
                if number or len(values) > 1:
                    vectors.setdefault(word, np.array(values, np.float32))
                if most and len(vectors) == most:
                    break
        table = np.stack(list(vectors.values()))
    except ValueError as error:
        raise TextError(f"{path} holds no word vectors: {error}") from error
    if not table.size or not np.isfinite(table).all():
        raise TextError(f"{path} holds word vectors that are not finite")
    return WordVectors(tuple(vectors), table)


@dataclass(frozen=True)
class _Sentences:
    """The sentences as lists of words; iterable more than once, as gensim needs it."""

    novels: Novels

    def __iter__(self) -> Iterator[list[str]]:
        words = self.novels.words
        for sentence in np.split(self.novels.text, self.novels.starts[1:]):
            yield [words[word] for word in sentence]


def corpus_vectors(novels: Novels, words: Sequence[str], dimensions: int, deviation: float) -> F32:
    """(words, dimensions) skip-gram vectors (Mikolov et al. 2013), the same in every run. words:
    words of the novels. The vectors are scaled to a standard deviation over all numbers."""
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
    # Other words are passed over.
    model.train(_Sentences(novels), total_examples=len(novels.starts), epochs=EPOCHS)
    vectors: F32 = model.wv[list(words)]
    vectors -= vectors.mean(axis=0)
    return vectors * (deviation / vectors.std())
