"""Tests of the algorithmic problems, against Python's arithmetic and the released code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.algorithmic.data import BINS, PLUS, PROBLEMS, TIMES, Problem, make_bins

# Numbers of examples per bin in the released code's data set.
RELEASED_SIZES = {"addition": {8: 162, 16: 28_941}, "sorting": {8: 51_184, 16: 84_000}}


@pytest.mark.parametrize("name", RELEASED_SIZES)
def test_bin_sizes_equal_the_released_code(name: str) -> None:
    bins = make_bins(PROBLEMS[name], np.random.default_rng(0), bins=(8, 16))
    for size, examples in bins.items():
        assert len(examples) == pytest.approx(RELEASED_SIZES[name][size], rel=0.05)
        assert examples.inputs.shape == examples.targets.shape == (len(examples), size)


def test_one_in_21_examples_is_in_a_larger_bin() -> None:
    bins = make_bins(PROBLEMS["sorting"], np.random.default_rng(0), per_length=200)
    assert list(bins) == list(BINS)
    for smaller, size in zip(BINS, BINS[1:], strict=False):
        lengths = np.count_nonzero(bins[size].inputs, axis=1)
        fitting = np.count_nonzero(lengths > smaller)
        assert fitting == 200 * (size - smaller)
        assert len(bins[size]) - fitting == fitting // 20
    is_padding = bins[64].inputs == 0
    assert np.all(is_padding[:, 1:] >= is_padding[:, :-1])  # at the end only


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
def test_sums_are_correct_without_leading_zeros(length: int, seed: int) -> None:
    for inputs, targets in zip(*draw(PROBLEMS["addition"], seed, length), strict=True):
        sign = inputs.index(PLUS)
        assert sign == len(inputs) // 2 == (length - 1) // 2
        total = number(inputs[:sign]) + number(inputs[sign + 1 :])
        digits = max(1, total.bit_length())
        padding = [0] * (len(inputs) - digits)
        assert targets == [(total >> i & 1) + 1 for i in range(digits)] + padding


@given(length=lengths, seed=seeds)
def test_products_are_correct_and_as_long_as_their_input(length: int, seed: int) -> None:
    for inputs, targets in zip(*draw(PROBLEMS["multiplication"], seed, length), strict=True):
        sign = inputs.index(TIMES)
        product = number(inputs[:sign]) * number(inputs[sign + 1 :])
        assert number(targets) == product
        assert set(targets) <= {1, 2}


@pytest.fixture(scope="module")
def released(shared_dir: Path) -> dict[str, Any]:
    path = shared_dir / "reference" / "oracles" / "algorithmic_examples.json"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    examples: dict[str, Any] = json.loads(path.read_text())
    return examples


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_targets_equal_the_released_code(name: str, released: dict[str, Any]) -> None:
    problem = PROBLEMS[name]
    for length, block in released[RELEASED[name]].items():
        inputs = np.array([x for x, _ in block["examples"]], dtype=np.uint8)
        padded = [y + [0] * (inputs.shape[1] - len(y)) for _, y in block["examples"]]
        assert problem.solve(inputs).tolist() == padded
        drawn = problem.draw(np.random.default_rng(0), int(length), 3)
        assert drawn.shape[1] == inputs.shape[1]


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_inputs_have_the_distribution_of_the_released_code(
    name: str, released: dict[str, Any]
) -> None:
    problem = PROBLEMS[name]
    for length, block in released[RELEASED[name]].items():
        recorded = np.array([x for x, _ in block["examples"]])
        drawn = problem.draw(np.random.default_rng(1), int(length), 4000)
        for symbol in range(problem.vocabulary):
            expected = (drawn == symbol).mean()
            # Five standard deviations of a symbol's share in the 200 recorded examples.
            tolerance = 5 * (expected * (1 - expected) / recorded.size) ** 0.5
            assert abs((recorded == symbol).mean() - expected) <= tolerance
        difference = abs(recorded.mean(axis=0) - drawn.mean(axis=0))
        deviation = drawn.std(axis=0) / len(recorded) ** 0.5
        assert np.all(difference <= 5 * deviation + 1e-9)
