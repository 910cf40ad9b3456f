"""Passages as the network's inputs and targets, and batches of them, functions of seed and step.

Both encodings replace the last word by the mask and mark the other places where it stands. The
released one compares symbols, so that an unknown answer equals every unknown word. The clean one
compares words, and gives the unknown words of a passage symbols of their own: numbers within
their kind (names or not, once in the passage or more often), of which the most frequent words
come first and of equals the later.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.lambada.text.passages import Passages
from training.lambada.words.vocabulary import KINDS, UNKNOWN, Vocabulary
from training.loop.epochs import shuffled_rows
from training.loop.parallel import WHOLE, Share
from training.loop.symbol_losses import ANSWER, PADDING

OTHER = 1  # class of a word that is not the answer

Symbols = NDArray[np.int64]


class Encoded(NamedTuple):
    """A passage without padding, both (words,); or a batch with padding, both (batch, length)."""

    inputs: Symbols
    """Symbols, the last of a passage being the mask."""
    targets: Symbols
    """ANSWER where the answer stands, OTHER elsewhere, PADDING after and before the passage."""


Encoder = Callable[[Vocabulary, Sequence[str]], Encoded]


def encode_released(vocabulary: Vocabulary, words: Sequence[str]) -> Encoded:
    """As the released code does, with the consequences above."""
    symbols = vocabulary.symbols
    inputs = np.array([symbols.get(word, UNKNOWN) for word in words], dtype=np.int64)
    answer = inputs[-1]
    inputs[-1] = vocabulary.mask
    return Encoded(inputs, np.where(inputs == answer, ANSWER, OTHER))


def encode_clean(vocabulary: Vocabulary, words: Sequence[str]) -> Encoded:
    """Distinguishes unknown words; the place of the answer itself is never right."""
    context, answer = words[:-1], words[-1]
    symbols = vocabulary.symbols
    numbers = number_unknown(vocabulary, context)
    inputs = [symbols.get(word) or numbers.get(word, UNKNOWN) for word in context]
    targets = [ANSWER if word == answer else OTHER for word in context]
    return Encoded(np.array([*inputs, vocabulary.mask]), np.array([*targets, OTHER]))


def number_unknown(vocabulary: Vocabulary, context: Sequence[str]) -> dict[str, int]:
    """Symbols of a passage's unknown words; those beyond the numbers have none."""
    unknown = Counter(
        word for word in reversed(context) if word not in vocabulary.symbols and word[0].isalpha()
    )
    numbers: dict[str, int] = {}
    of_kind = [0] * KINDS
    for word, count in unknown.most_common():
        kind = 2 * (word in vocabulary.names) + (count > 1)
        if of_kind[kind] < vocabulary.numbered:
            numbers[word] = vocabulary.first + (kind - KINDS) * vocabulary.numbered + of_kind[kind]
            of_kind[kind] += 1
    return numbers


def place(encoded: Encoded, length: int, offset: int) -> Symbols:
    """[2, length]: inputs and targets, padded in front of `offset` and behind."""
    out = np.full((2, length), PADDING, dtype=np.int64)
    out[:, offset : offset + len(encoded.inputs)] = encoded
    return out


PADDING_STREAM = 2**32  # of the seed, beside the epochs' permutations


@dataclass(frozen=True)
class Batches:
    """Endless shuffled epochs over training passages, each padded at random or in front."""

    passages: Passages
    vocabulary: Vocabulary
    encode: Encoder
    length: int
    batch_size: int
    random_padding: bool
    seed: int
    share: Share = WHOLE

    def stream(self, step: int = 0) -> Iterator[Encoded]:
        """This process's share of each batch from an optimiser step on, counted from 0."""
        own = self.share.rows(self.batch_size)
        while True:
            rows = shuffled_rows(len(self.passages), self.batch_size, step, self.seed)
            # A separate stream: the padding of a step does not depend on the steps before.
            shifts = np.random.default_rng((self.seed, PADDING_STREAM, step)).random(len(rows))
            yield self._batch(rows[own], shifts[own])
            step += 1

    def _batch(self, rows: Symbols, shifts: NDArray[np.float64]) -> Encoded:
        placed = []
        for row, shift in zip(rows, shifts, strict=True):
            encoded = self.encode(self.vocabulary, self.passages[row])
            room = self.length - len(encoded.inputs)
            offset = int(shift * (room + 1)) if self.random_padding else room
            placed.append(place(encoded, self.length, offset))
        return Encoded(*np.stack(placed, axis=1))
