"""Word vectors, from text files or from the novels themselves by gensim's word2vec.

Files are fastText's .vec or in GloVe's format, read line by line. A line is a word and its numbers,
separated by spaces; fastText's first line holds the number of words and of dimensions, GloVe has
none.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.lambada.text.novels import Novels, TextError

SEED = 0  # of the vectors of special symbols, which no file has
CORPUS_SEED = 1
EPOCHS = 2
WINDOW = 5  # words predicted on either side


@dataclass(frozen=True)
class WordVectors:
    """A pre-trained embedding."""

    words: tuple[str, ...]
    vectors: NDArray[np.float32]
    """(words, dimensions)."""

    def table(self, first: int, released: bool) -> NDArray[np.float32]:
        """(first + words, dimensions): the vectors behind those of `first` special symbols.

        Padding is zero. The others are random: uniform in [0, 1) as in the released code, or as
        large as the words' own.
        """
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

    Raises TextError for files that are missing, empty or no word vectors, and for vectors of
    different dimensions.
    """
    words: dict[str, None] = {}
    numbers = array("f")  # grows in place: a million vectors of 300 take 1.2 GB
    dimensions = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                fields = line.rstrip().split(" ")
                if number == 1 and len(fields) == 2 and all(map(str.isdecimal, fields)):
                    dimensions = int(fields[1])
                    continue
                word, *values = fields
                dimensions = dimensions or len(values)
                vector = _vector(values, dimensions, f"{path}, line {number}")
                if word not in words:
                    words[word] = None
                    numbers.frombytes(vector.tobytes())
                if len(words) == most:
                    break
    except UnicodeDecodeError as error:
        raise TextError(f"{path} is not a text file in UTF-8: {error}") from error
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror}") from error
    if not words:
        raise TextError(f"{path} holds no word vectors")
    return WordVectors(tuple(words), np.frombuffer(numbers, np.float32).reshape(-1, dimensions))


def _vector(values: list[str], dimensions: int, where: str) -> NDArray[np.float32]:
    """Raises TextError."""
    if not values or len(values) != dimensions:
        raise TextError(f"{where}: {len(values)} numbers, expected a word and {dimensions}")
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise TextError(f"{where}: not a word and its vector: {error}") from error
    if not np.isfinite(vector).all():
        raise TextError(f"{where}: a vector that is not finite")
    return vector


@dataclass(frozen=True)
class _Sentences:
    """The sentences as lists of words; iterable more than once, as gensim needs it."""

    novels: Novels

    def __iter__(self) -> Iterator[list[str]]:
        words = self.novels.words
        for sentence in np.split(self.novels.text, self.novels.starts[1:]):
            yield [words[word] for word in sentence]


def corpus_vectors(
    novels: Novels, words: Sequence[str], dimensions: int, deviation: float
) -> NDArray[np.float32]:
    """(words, dimensions) skip-gram vectors (Mikolov et al. 2013), the same in every run.

    words: words of the novels. The vectors are scaled to a standard deviation over all numbers.
    """
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
    model.train(
        _Sentences(novels), total_examples=len(novels.starts), epochs=EPOCHS
    )  # other words are passed over
    vectors: NDArray[np.float32] = model.wv[list(words)]
    vectors -= vectors.mean(axis=0)
    return vectors * (deviation / vectors.std())
