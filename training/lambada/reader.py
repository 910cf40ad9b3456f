"""Encodes passages as a network's inputs and targets, and computes its answers by voting.

A mask replaces the last word, and the targets mark the other occurrences of this word. The unknown
words before the answer are of four kinds: names or other words, which occur either once or several
times before the answer. The words of a kind are sorted by falling frequency, later words first if
they are equally frequent. Each of the first NUMBERED has a symbol, and the others share UNKNOWN.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from training.arrays import F32, I64, Bools
from training.lambada.words import FIRST, KINDS, MASK, NUMBERED, UNKNOWN, Vocabulary
from training.loop.symbol_losses import ANSWER, BATCH_SYMBOLS, PADDING

OTHER = 1  # class of a word that is not the answer


class Encoded(NamedTuple):
    """A passage without padding, (words,), or a batch with padding, (batch, length)."""

    inputs: I64  # symbols; the last symbol of a passage is the mask
    targets: I64
    """ANSWER where the answer occurs, OTHER elsewhere, PADDING before and after the passage."""


def encode(vocabulary: Vocabulary, words: Sequence[str]) -> Encoded:
    """Encode a passage. The target of the mask is always OTHER."""
    context, answer = words[:-1], words[-1]
    symbols = vocabulary.symbols
    numbers = number_unknown(vocabulary, context)
    inputs = [symbols.get(word) or numbers.get(word, UNKNOWN) for word in context]
    targets = [ANSWER if word == answer else OTHER for word in context]
    return Encoded(np.array([*inputs, MASK]), np.array([*targets, OTHER]))


def number_unknown(vocabulary: Vocabulary, context: Sequence[str]) -> dict[str, int]:
    """Return the symbols of a passage's unknown words, at most NUMBERED of each kind."""
    unknown = Counter(
        word for word in reversed(context) if word not in vocabulary.symbols and word[0].isalpha()
    )
    numbers: dict[str, int] = {}
    of_kind = [0] * KINDS
    for word, count in unknown.most_common():
        kind = 2 * (word in vocabulary.names) + (count > 1)
        if of_kind[kind] < NUMBERED:
            numbers[word] = FIRST + (kind - KINDS) * NUMBERED + of_kind[kind]
            of_kind[kind] += 1
    return numbers


def place(encoded: Encoded, length: int, offset: int) -> I64:
    """Return inputs and targets, [2, length], padded so that the passage starts at `offset`."""
    out = np.full((2, length), PADDING, dtype=np.int64)
    out[:, offset : offset + len(encoded.inputs)] = encoded
    return out


def vote(scores: Sequence[F32], offsets: Sequence[int], words: Sequence[str]) -> bool:
    """Return True if the last word has the highest probability of all words. The probability of a
    word is summed over its occurrences in all placements. (The paper selects one position; the
    released code counts the most probable positions of ten placements.) Padding and mask are
    ignored. scores: logits of each placement."""
    context = words[:-1]
    sums: Counter[str] = Counter()
    for score, offset in zip(scores, offsets, strict=True):
        part = score[offset : offset + len(context)].astype(np.float64)
        for word, share in zip(context, softmax(part), strict=True):
            sums[word] += share
    return sums.most_common(1)[0][0] == words[-1]


@dataclass(frozen=True)
class Reader:
    """A network, its vocabulary, and the placement of passages in its input."""

    network: nn.Module
    vocabulary: Vocabulary
    length: int  # padded length; longer passages are padded to the next power of two
    votes: int  # number of random placements of each passage; 0: one placement, at the end

    def right(self, passages: Sequence[Sequence[str]]) -> Bools:
        """Return for each passage, (passages,), True if the vote selects its last word. Leaves the
        network in evaluation mode."""
        by_length: dict[int, list[int]] = {}  # indexes of passages by padded length
        for row, words in enumerate(passages):
            length = max(self.length, 1 << (len(words) - 1).bit_length())
            by_length.setdefault(length, []).append(row)
        out = np.zeros(len(passages), dtype=bool)
        self.network.eval()
        for length, rows in by_length.items():
            batch = max(1, BATCH_SYMBOLS // (length * max(1, self.votes)))
            for begin in range(0, len(rows), batch):
                part = rows[begin : begin + batch]
                out[part] = self._right([passages[row] for row in part], part, length)
        return out

    @torch.inference_mode()
    def _right(
        self, passages: Sequence[Sequence[str]], numbers: Sequence[int], length: int
    ) -> list[bool]:
        inputs, offsets = [], []
        for number, words in zip(numbers, passages, strict=True):
            encoded, room = encode(self.vocabulary, words), length - len(words)
            # The placements depend only on the number of the passage.
            rng = np.random.default_rng((0, number))
            starts = rng.integers(0, room + 1, self.votes).tolist() if self.votes else [room]
            inputs += [place(encoded, length, start)[0] for start in starts]
            offsets.append(starts)
        device = next(self.network.parameters()).device
        logits = self.network(torch.from_numpy(np.stack(inputs)).to(device))
        scores = iter(logits[:, :, ANSWER].float().cpu().numpy())
        return [
            vote([next(scores) for _ in starts], starts, words)
            for starts, words in zip(offsets, passages, strict=True)
        ]
