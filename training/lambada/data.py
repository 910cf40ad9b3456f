"""Passages as the network's inputs and targets.

Both encodings replace the last word by the mask and mark the other places where it stands. The
released one compares symbols, so that an unknown answer equals every unknown word. The clean one
compares words, and gives the unknown words of a passage symbols of their own: numbers within
their kind (names or not, once in the passage or more often), of which the most frequent words
come first and of equals the later.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.lambada.words.vocabulary import KINDS, UNKNOWN, Vocabulary
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
