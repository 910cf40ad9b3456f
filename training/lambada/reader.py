"""Passages as a network's inputs and targets, and its answers: a vote over several placings.

Both encodings replace the last word by the mask and mark the other places where it stands. The
released one compares symbols, so that an unknown answer equals every unknown word. The clean one
compares words, and gives the unknown words of a passage symbols of their own: numbers within
their kind (names or not, once in the passage or more often), of which the most frequent words
come first and of equals the later.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from training.arrays import F32, I64, Bools
from training.lambada.words import KINDS, UNKNOWN, Vocabulary
from training.loop.symbol_losses import ANSWER, PADDING

OTHER = 1  # class of a word that is not the answer

Symbols = I64


class Encoded(NamedTuple):
    """A passage without padding, both (words,); or a batch with padding, both (batch, length)."""

    inputs: Symbols  # symbols, the last of a passage being the mask
    targets: Symbols
    """ANSWER where the answer stands, OTHER elsewhere, PADDING after and before the passage."""


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


Scores = Sequence[F32]  # of each placing, the logits of all its positions: (length,)


def vote_released(
    scores: Scores, offsets: Sequence[int], words: Sequence[str], encoded: Encoded
) -> bool:
    """As the released code counts: the position that most placings choose. A placing that chooses
    padding has no vote; of positions with equally many, the one whose first vote came last wins.
    The first position can never be right: the code takes its index, 0, for "nothing chosen"."""
    votes: Counter[int] = Counter()
    for score, offset in zip(scores, offsets, strict=True):
        position = int(score.argmax()) - offset
        if 0 <= position < len(words):
            votes[position] += 1
    if not votes:
        return False
    most = max(votes.values())
    chosen = [position for position, count in votes.items() if count == most][-1]
    return chosen != 0 and bool(encoded.targets[chosen] == ANSWER)


def vote_clean(
    scores: Scores, offsets: Sequence[int], words: Sequence[str], encoded: Encoded
) -> bool:
    """The word whose places have the largest probability together, over all placings. Padding and
    the mask's place are not candidates."""
    context = words[:-1]
    sums: Counter[str] = Counter()
    for score, offset in zip(scores, offsets, strict=True):
        part = score[offset : offset + len(context)].astype(np.float64)
        for word, share in zip(context, softmax(part), strict=True):
            sums[word] += share
    return sums.most_common(1)[0][0] == words[-1]


BATCH_SYMBOLS = 32_768  # bounds memory, whatever the length


@dataclass(frozen=True)
class Preprocessing:
    """How passages become symbols and scores become answers."""

    encode: Callable[[Vocabulary, Sequence[str]], Encoded]
    vote: Callable[[Scores, Sequence[int], Sequence[str], Encoded], bool]
    longer: bool
    """Whether passages longer than the network was trained on are tried, at the next power of
    two; the released code leaves them out."""


PREPROCESSING = {
    "clean": Preprocessing(encode_clean, vote_clean, longer=True),
    "released": Preprocessing(encode_released, vote_released, longer=False),
}


@dataclass(frozen=True)
class Reader:
    """A network and all that is needed to ask it."""

    network: nn.Module
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    length: int  # positions that passages are padded to
    votes: int  # random placings of each passage; 0 puts it once, at the end

    def right(self, passages: Sequence[Sequence[str]]) -> Bools:
        """(passages,) whether each one's last word is found. Leaves the network evaluating."""
        by_length: dict[int, list[int]] = {}  # positions of the network, a power of two
        for row, words in enumerate(passages):
            if self.takes(words):
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

    def takes(self, words: Sequence[str]) -> bool:
        """Whether a passage is tried at all."""
        return self.preprocessing.longer or len(words) <= self.length

    @torch.inference_mode()
    def _right(
        self, passages: Sequence[Sequence[str]], numbers: Sequence[int], length: int
    ) -> list[bool]:
        encoded = [self.preprocessing.encode(self.vocabulary, words) for words in passages]
        offsets = [
            self._offsets(number, length - len(words))
            for number, words in zip(numbers, passages, strict=True)
        ]
        inputs = [
            place(one, length, offset)[0]
            for one, places in zip(encoded, offsets, strict=True)
            for offset in places
        ]
        device = next(self.network.parameters()).device
        logits = self.network(torch.from_numpy(np.stack(inputs)).to(device))
        scores = iter(logits[:, :, ANSWER].float().cpu().numpy())
        return [
            self.preprocessing.vote([next(scores) for _ in places], places, words, one)
            for places, words, one in zip(offsets, passages, encoded, strict=True)
        ]

    def _offsets(self, number: int, room: int) -> list[int]:
        if not self.votes:
            return [room]
        # Of the passage alone, whatever else is in the file before it.
        return np.random.default_rng((0, number)).integers(0, room + 1, self.votes).tolist()
