"""Generators, compared with Python's arithmetic and the released code, and the binned data set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithmic.data import (
    BINS,
    PLUS,
    PROBLEMS,
    TIMES,
    Problem,
    make_bins,
)

# Sizes of the bins of the released code's data set.
RELEASED_SIZES = {"addition": {8: 162, 16: 28_941}, "sorting": {8: 51_184, 16: 84_000}}


@pytest.mark.parametrize("name", RELEASED_SIZES)
def test_bins_are_as_large_as_in_the_released_code(name: str) -> None:
    bins = make_bins(PROBLEMS[name], np.random.default_rng(0), bins=(8, 16))
    for size, examples in bins.items():
        assert len(examples) == pytest.approx(RELEASED_SIZES[name][size], rel=0.05)
        assert examples.inputs.shape == examples.targets.shape == (len(examples), size)


def test_examples_lie_in_the_smallest_bin_but_for_a_twentieth() -> None:
    bins = make_bins(PROBLEMS["sorting"], np.random.default_rng(0), per_length=200)
    assert list(bins) == list(BINS)
    for smaller, size in zip(BINS, BINS[1:], strict=False):
        lengths = np.count_nonzero(bins[size].inputs, axis=1)
        own = np.count_nonzero(lengths > smaller)
        assert own == 200 * (size - smaller)
        assert len(bins[size]) - own == own // 20
    padded = bins[64].inputs == 0
    assert np.all(padded[:, 1:] >= padded[:, :-1])  # at the end only


RELEASED = {"addition": "badd", "multiplication": "bmul", "sorting": "sort"}
lengths = st.integers(1, 200)
seeds = st.integers(0, 2**32)


def number(symbols: list[int]) -> int:
    """Return the value of a binary number, least significant digit first."""
    return sum((symbol - 1) << i for i, symbol in enumerate(symbols))


def draw(problem: Problem, seed: int, length: int) -> tuple[list[list[int]], list[list[int]]]:
    inputs = problem.draw(np.random.default_rng(seed), length, 5)
    targets = problem.solve(inputs)
    assert targets.shape == inputs.shape
    return inputs.tolist(), targets.tolist()


@given(length=lengths, seed=seeds)
def test_sums_are_right_and_have_no_leading_zeros(length: int, seed: int) -> None:
    for inputs, targets in zip(*draw(PROBLEMS["addition"], seed, length), strict=True):
        sign = inputs.index(PLUS)
        assert sign == len(inputs) // 2 == (length - 1) // 2
        total = number(inputs[:sign]) + number(inputs[sign + 1 :])
        digits = max(1, total.bit_length())
        assert targets == [(total >> i & 1) + 1 for i in range(digits)] + [0] * (
            len(inputs) - digits
        )


@given(length=lengths, seed=seeds)
def test_products_are_right_and_as_long_as_their_input(length: int, seed: int) -> None:
    for inputs, targets in zip(*draw(PROBLEMS["multiplication"], seed, length), strict=True):
        sign = inputs.index(TIMES)
        product = number(inputs[:sign]) * number(inputs[sign + 1 :])
        assert number(targets) == product
        assert set(targets) <= {1, 2}


@pytest.fixture(scope="module")
def released(shared_dir: Path) -> dict[str, Any]:
    path = shared_dir / "reference" / "oracles" / "algorithmic_examples.json"
    if not path.is_file():
        pytest.skip(f"no {path.name}")
    out: dict[str, Any] = json.loads(path.read_text())
    return out


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_targets_are_those_of_the_released_code(name: str, released: dict[str, Any]) -> None:
    problem = PROBLEMS[name]
    for length, block in released[RELEASED[name]].items():
        theirs = block["examples"]
        inputs = np.array([x for x, _ in theirs], dtype=np.uint8)
        ours = problem.solve(inputs)
        padded = [y + [0] * (inputs.shape[1] - len(y)) for _, y in theirs]
        assert ours.tolist() == padded
        drawn = problem.draw(np.random.default_rng(0), int(length), 3)
        assert drawn.shape[1] == inputs.shape[1]


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_inputs_are_distributed_like_those_of_the_released_code(
    name: str, released: dict[str, Any]
) -> None:
    problem = PROBLEMS[name]
    for length, block in released[RELEASED[name]].items():
        theirs = np.array([x for x, _ in block["examples"]])
        ours = problem.draw(np.random.default_rng(1), int(length), 4000)
        for symbol in range(problem.vocabulary):
            expected = (ours == symbol).mean()
            # Five standard deviations of the share among their 200 examples' symbols.
            tolerance = 5 * (expected * (1 - expected) / theirs.size) ** 0.5
            assert abs((theirs == symbol).mean() - expected) <= tolerance
        positions = abs(theirs.mean(axis=0) - ours.mean(axis=0))
        deviation = ours.std(axis=0) / len(theirs) ** 0.5
        assert np.all(positions <= 5 * deviation + 1e-9)
