"""Examples of the algorithmic tasks, encoded and distributed as in the released code.

Numbers are binary, least significant digit first. Symbol 1 is the digit 0, symbol 2 the digit 1,
and symbol 0 padding::

    addition        2 1 2 [11] 1 1 2    5 + 4 = 9     ->  2 1 1 2
    multiplication  2 1 2 [12] 1 1 2    5 * 4 = 20    ->  1 1 2 1 2 1 1
    sorting         5 1 11 3                          ->  1 3 5 11

A sum has no leading zeros. A product has as many digits as its input has symbols, so its most
significant digit is always 0. An example of nominal length L of the binary tasks has two numbers of
(L - 1) // 2 digits, in total 2 * ((L - 1) // 2) + 1 symbols, an odd number.

The data set has lengths 1 to 64 in four bins. For every nominal length the same number of distinct
inputs is drawn, or fewer once repeats are frequent (REPEATS). Each example belongs to the smallest
bin that is long enough and is padded at its end. Every bin except the first also contains examples
from smaller bins, a twentieth of its own, so that the network learns to ignore padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.arrays import Rng
from training.loop.symbol_losses import PADDING

Symbols = NDArray[np.uint8]

DIGIT = 1  # symbol of the digit 0; the digit 1 follows
PLUS, TIMES = 11, 12
MAX_KEY = 11  # maximum of the numbers to sort; the minimum is 1


@dataclass(frozen=True)
class Problem:
    """An algorithmic task: its inputs and their correct outputs."""

    name: str
    vocabulary: int  # number of input symbols, including padding (released code: n_input)
    classes: int  # number of output classes, including padding (released code: n_output)
    blocks: int  # number of Beneš blocks in the paper
    draw: Callable[[Rng, int, int], Symbols]
    """Maps a generator, nominal length and count to inputs, (count, symbols), unpadded."""
    solve: Callable[[Symbols], Symbols]
    """Maps inputs, (count, symbols), to targets of the same shape, with PADDING after their end."""


def draw_numbers(sign: int, rng: Rng, length: int, count: int) -> Symbols:
    """Draw pairs of numbers with a sign between them, (count, 2 * ((length - 1) // 2) + 1)."""
    digits = (length - 1) // 2
    numbers = rng.integers(0, 2, (count, 2 * digits), dtype=np.uint8) + np.uint8(DIGIT)
    middle = np.full((count, 1), sign, dtype=np.uint8)
    return np.concatenate([numbers[:, :digits], middle, numbers[:, digits:]], axis=1)


def draw_keys(rng: Rng, length: int, count: int) -> Symbols:
    """Draw numbers to sort, 1 ... MAX_KEY, (count, length)."""
    return rng.integers(1, MAX_KEY + 1, (count, length), dtype=np.uint8)


def add(inputs: Symbols) -> Symbols:
    """Return the sums without leading zeros. The sum 0 has one digit."""
    count, symbols = inputs.shape
    digits = symbols // 2
    first, second = operands(inputs)
    out = np.zeros_like(inputs)
    carry: Symbols = np.zeros(count, dtype=np.uint8)
    for i in range(digits):
        total = first[:, i] + second[:, i] + carry
        out[:, i] = total & np.uint8(1)
        carry = total >> np.uint8(1)
    out[:, digits] = carry
    # Digits after the most significant 1 become padding, but the first digit remains.
    is_digit = np.cumsum(out[:, ::-1], axis=1, dtype=np.int64)[:, ::-1] > 0
    is_digit[:, 0] = True
    return np.where(is_digit, out + np.uint8(DIGIT), np.uint8(PADDING))


def multiply(inputs: Symbols) -> Symbols:
    """Return the products, padded with leading zeros to the length of the input."""
    first, second = (np.packbits(bits, axis=1, bitorder="little") for bits in operands(inputs))
    count, symbols = inputs.shape
    width = -(-symbols // 8)
    products = b"".join(
        (int.from_bytes(a.tobytes(), "little") * int.from_bytes(b.tobytes(), "little")).to_bytes(
            width, "little"
        )
        for a, b in zip(first, second, strict=True)
    )
    packed = np.frombuffer(products, dtype=np.uint8).reshape(count, width)
    bits = np.unpackbits(packed, axis=1, count=symbols, bitorder="little")
    return bits + np.uint8(DIGIT)


def operands(inputs: Symbols) -> tuple[Symbols, Symbols]:
    """Return the digits of both numbers, (count, digits) each, least significant first."""
    digits = inputs.shape[1] // 2
    return inputs[:, :digits] - np.uint8(DIGIT), inputs[:, digits + 1 :] - np.uint8(DIGIT)


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("addition", 13, 4, 1, partial(draw_numbers, PLUS), add),
        Problem("multiplication", 13, 4, 2, partial(draw_numbers, TIMES), multiply),
        Problem("sorting", 12, 12, 1, draw_keys, partial(np.sort, axis=1)),
    )
}
"""The algorithmic tasks by name (paper, section "Algorithmic tasks")."""


BINS = (8, 16, 32, 64)
EXAMPLES_PER_LENGTH = 10_000
REPEATS = 20  # number of consecutive repeated inputs after which a length counts as exhausted
SHORTER_PART = 20  # a bin has one example from smaller bins for every 20 examples of its own


@dataclass(frozen=True)
class Examples:
    """Inputs and targets of one bin, both (count, bin) and padded at the end."""

    inputs: Symbols
    targets: Symbols

    def __len__(self) -> int:
        return len(self.inputs)

    def padded(self, length: int) -> Examples:
        width = ((0, 0), (0, length - self.inputs.shape[1]))
        return Examples(np.pad(self.inputs, width), np.pad(self.targets, width))

    def take(self, rows: NDArray[np.integer] | slice) -> Examples:
        return Examples(self.inputs[rows], self.targets[rows])

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return both as integer tensors."""
        inputs, targets = (torch.from_numpy(a).to(device) for a in (self.inputs, self.targets))
        return inputs.long(), targets.long()


def distinct_examples(problem: Problem, rng: Rng, length: int, count: int) -> Examples:
    """Return up to `count` examples of a nominal length with distinct inputs, in the order in which
    they were drawn."""
    seen: set[bytes] = set()
    distinct: list[Symbols] = []
    repeats = 0
    while len(distinct) < count and repeats < REPEATS:
        for row in problem.draw(rng, length, max(64, count - len(distinct))):
            key = row.tobytes()
            if key in seen:
                repeats += 1
            else:
                repeats = 0
                seen.add(key)
                distinct.append(row)
            if len(distinct) == count or repeats == REPEATS:
                break
    inputs = np.stack(distinct)
    return Examples(inputs, problem.solve(inputs))


def make_bins(
    problem: Problem, rng: Rng, bins: tuple[int, ...] = BINS, per_length: int = EXAMPLES_PER_LENGTH
) -> dict[int, Examples]:
    """Return examples of every nominal length up to the last bin, by bin."""
    parts: dict[int, list[Examples]] = {size: [] for size in bins}
    for length in range(1, bins[-1] + 1):
        examples = distinct_examples(problem, rng, length, per_length)
        size = next(size for size in bins if examples.inputs.shape[1] <= size)
        parts[size].append(examples.padded(size))
    out: dict[int, Examples] = {}
    for size in bins:
        own = sum(map(len, parts[size]))
        if out:
            # The smaller bin of each extra example is drawn uniformly.
            origins = rng.choice(list(out), own // SHORTER_PART)
            for smaller, shorter in out.items():
                rows = rng.integers(0, len(shorter), np.count_nonzero(origins == smaller))
                parts[size].append(shorter.take(rows).padded(size))
        out[size] = Examples(
            np.concatenate([part.inputs for part in parts[size]]),
            np.concatenate([part.targets for part in parts[size]]),
        )
    return out
