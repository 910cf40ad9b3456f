"""The released code's data set: lengths 1 to 64 in four bins.

For every nominal length 1 ... 64 the same number of distinct inputs is drawn (fewer where there
are fewer), and each example goes to the smallest bin that holds it, padded with zeros at its
end. Every bin but the first also receives a twentieth of its size from smaller bins, so that the
network learns to ignore padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.algorithmic.generators import Problem, Symbols

BINS = (8, 16, 32, 64)
EXAMPLES_PER_LENGTH = 10_000
REPEATS = 20  # known inputs in a row after which a length counts as exhausted
SHORTER_PART = 20  # one extra example from smaller bins for every 20 of a bin's own


@dataclass(frozen=True)
class Examples:
    """Inputs and targets of one bin, both (count, bin) and padded at the end."""

    inputs: Symbols
    targets: Symbols

    def __len__(self) -> int:
        return len(self.inputs)

    def padded(self, length: int) -> Examples:
        """The same with more padding."""
        width = ((0, 0), (0, length - self.inputs.shape[1]))
        return Examples(np.pad(self.inputs, width), np.pad(self.targets, width))

    def take(self, rows: NDArray[np.integer] | slice) -> Examples:
        """Some of the examples."""
        return Examples(self.inputs[rows], self.targets[rows])

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Both as integers for a network."""
        inputs, targets = (torch.from_numpy(a).to(device) for a in (self.inputs, self.targets))
        return inputs.long(), targets.long()


def distinct_examples(
    problem: Problem, rng: np.random.Generator, length: int, count: int
) -> Examples:
    """Up to `count` examples of a nominal length with distinct inputs, in the order drawn."""
    seen: set[bytes] = set()
    kept: list[Symbols] = []
    repeats = 0
    while len(kept) < count and repeats < REPEATS:
        for row in problem.draw(rng, length, max(64, count - len(kept))):
            key = row.tobytes()
            if key in seen:
                repeats += 1
            else:
                repeats = 0
                seen.add(key)
                kept.append(row)
            if len(kept) == count or repeats == REPEATS:
                break
    inputs = np.stack(kept)
    return Examples(inputs, problem.solve(inputs))


def make_bins(
    problem: Problem,
    rng: np.random.Generator,
    bins: tuple[int, ...] = BINS,
    per_length: int = EXAMPLES_PER_LENGTH,
) -> dict[int, Examples]:
    """Examples of every nominal length up to the last bin, by bin."""
    parts: dict[int, list[Examples]] = {size: [] for size in bins}
    for length in range(1, bins[-1] + 1):
        examples = distinct_examples(problem, rng, length, per_length)
        size = next(size for size in bins if examples.inputs.shape[1] <= size)
        parts[size].append(examples.padded(size))
    out: dict[int, Examples] = {}
    for size in bins:
        own = sum(map(len, parts[size]))
        if out:
            # Which smaller bin each extra example comes from is uniform, whatever its size.
            origins = rng.choice(list(out), own // SHORTER_PART)
            for smaller, shorter in out.items():
                rows = rng.integers(0, len(shorter), np.count_nonzero(origins == smaller))
                parts[size].append(shorter.take(rows).padded(size))
        out[size] = Examples(
            np.concatenate([part.inputs for part in parts[size]]),
            np.concatenate([part.targets for part in parts[size]]),
        )
    return out
