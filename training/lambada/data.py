"""Batches of passages, each a function of seed and step alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.lambada.encoding import Encoder, Symbols, place
from training.lambada.text.passages import Passages
from training.lambada.words.vocabulary import Vocabulary
from training.loop.parallel import WHOLE, Share

PADDING_STREAM = 2**32  # of the seed, beside the epochs' permutations


@dataclass(frozen=True)
class Batch:
    """Both (batch, length)."""

    inputs: Symbols
    targets: Symbols


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

    def stream(self, step: int = 0) -> Iterator[Batch]:
        """This process's share of each batch from an optimiser step on, counted from 0."""
        size = len(self.passages)
        own = self.share.rows(self.batch_size)
        epoch, order = -1, np.zeros(0, dtype=np.int64)
        while True:
            rows = []
            for at in range(step * self.batch_size, (step + 1) * self.batch_size):
                if at // size != epoch:
                    epoch = at // size
                    order = np.random.default_rng((self.seed, epoch)).permutation(size)
                rows.append(order[at % size])
            # A separate stream: the padding of a step does not depend on the steps before.
            shifts = np.random.default_rng((self.seed, PADDING_STREAM, step)).random(len(rows))
            yield self._batch(rows[own], shifts[own])
            step += 1

    def _batch(self, rows: list[int], shifts: NDArray[np.float64]) -> Batch:
        inputs, targets = np.empty((2, len(rows), self.length), dtype=np.int64)
        for at, (row, shift) in enumerate(zip(rows, shifts, strict=True)):
            encoded = self.encode(self.vocabulary, self.passages[row])
            room = self.length - len(encoded.inputs)
            offset = int(shift * (room + 1)) if self.random_padding else room
            inputs[at], targets[at] = place(encoded, self.length, offset)
        return Batch(inputs, targets)
