"""Word vectors trained on the novels themselves, by gensim's word2vec."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.lambada.text.novels import Novels

SEED = 1
EPOCHS = 2
WINDOW = 5  # words predicted on either side


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
        seed=SEED,
        epochs=EPOCHS,
    )
    model.build_vocab_from_freq({word: int(novels.counts[index[word]]) for word in words})
    # Words without vectors are passed over.
    model.train(_Sentences(novels), total_examples=len(novels.starts), epochs=EPOCHS)
    vectors: NDArray[np.float32] = model.wv[list(words)]
    vectors -= vectors.mean(axis=0)
    return vectors * (deviation / vectors.std())
