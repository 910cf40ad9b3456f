"""Examples of the algorithmic tasks, encoded as in the released code.

Numbers are binary, least significant digit first, written with symbol 1 for the digit 0 and 2 for
the digit 1; 0 is padding::

    addition        2 1 2 [11] 1 1 2    5 + 4 = 9     ->  2 1 1 2
    multiplication  2 1 2 [12] 1 1 2    5 * 4 = 20    ->  1 1 2 1 2 1 1
    sorting         5 1 11 3                          ->  1 3 5 11

A sum has no leading zeros, a product always as many digits as its input has symbols (so its top
digit is always 0). An example of nominal length L of the binary tasks has two numbers of
(L - 1) // 2 digits: 2 * ((L - 1) // 2) + 1 symbols, an odd number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Symbols = NDArray[np.uint8]

PADDING = 0
DIGIT = 1  # symbol of the digit 0; the digit 1 follows
PLUS, TIMES = 11, 12
LARGEST_KEY = 11  # of the numbers to sort; the smallest is 1
SPREADS = (0.1, 0.3, 1.0)
"""Shapes of the gamma distributions that uneven frequencies of keys are drawn from: with the
smallest, one or two keys make up most of a sequence."""


@dataclass(frozen=True)
class Problem:
    """An algorithmic task: how inputs are drawn and what the right output is."""

    name: str
    vocabulary: int
    """Input symbols, padding included (released code: n_input)."""
    classes: int
    """Output classes, padding included (released code: n_output)."""
    blocks: int
    """Beneš blocks that the paper uses for it."""
    draw: Callable[[np.random.Generator, int, int], Symbols]
    """(generator, nominal length, count) -> inputs (count, symbols), no padding."""
    solve: Callable[[Symbols], Symbols]
    """inputs (count, symbols) -> targets of the same shape, PADDING behind their end."""


def draw_numbers(sign: int, rng: np.random.Generator, length: int, count: int) -> Symbols:
    """Pairs of binary numbers with a sign between: (count, 2 * ((length - 1) // 2) + 1)."""
    digits = (length - 1) // 2
    numbers = rng.integers(0, 2, (count, 2 * digits), dtype=np.uint8) + np.uint8(DIGIT)
    middle = np.full((count, 1), sign, dtype=np.uint8)
    return np.concatenate([numbers[:, :digits], middle, numbers[:, digits:]], axis=1)


def draw_keys(rng: np.random.Generator, length: int, count: int, uneven: float = 0.0) -> Symbols:
    """Numbers to sort, 1 ... LARGEST_KEY: (count, length).

    uneven: share of the sequences whose keys have frequencies of their own, by SPREADS; in the
    others all keys are equally likely.
    """
    keys = rng.integers(1, LARGEST_KEY + 1, (count, length), dtype=np.uint8)
    if uneven:
        rows = np.flatnonzero(rng.random(count) < uneven)
        spread = rng.choice(SPREADS, (len(rows), 1))
        weights = rng.gamma(spread, size=(len(rows), LARGEST_KEY)) + 1e-9
        below = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        chance = rng.random((len(rows), length, 1))
        keys[rows] = 1 + (chance > below[:, None, :-1]).sum(axis=2)
    return keys


def add(inputs: Symbols) -> Symbols:
    """Sums without leading zeros; the sum zero keeps one digit."""
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
    # Digits up to the most significant 1 stay, at least one of them.
    above = np.cumsum(out[:, ::-1], axis=1, dtype=np.int64)[:, ::-1] > 0
    above[:, 0] = True
    return np.where(above, out + np.uint8(DIGIT), np.uint8(PADDING))


def multiply(inputs: Symbols) -> Symbols:
    """Products, with leading zeros as long as the input."""
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
    """The digits 0 and 1 of both numbers, (count, digits) each, least significant first."""
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
"""By name; the paper's section "Algorithmic tasks"."""
