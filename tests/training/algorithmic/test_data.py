"""The binned data set of the algorithmic tasks."""

import numpy as np
import pytest

from training.algorithmic.data import BINS, PROBLEMS, make_bins
from training.loop.parallel import shuffled_rows

# Sizes that the released code's data set had when it was built, per bin.
RELEASED_SIZES = {
    "addition": {8: 162, 16: 28_941, 32: 168_000, 64: 336_000},
    "multiplication": {8: 162, 16: 28_941, 32: 168_000, 64: 336_000},
    "sorting": {8: 51_184, 16: 84_000, 32: 168_000, 64: 336_000},
}


@pytest.mark.parametrize("name", ["addition", "sorting"])
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


def test_an_epoch_shows_every_example_once() -> None:
    for epoch in range(2):
        seen = np.concatenate([shuffled_rows(48, 16, 3 * epoch + i, 0) for i in range(3)])
        assert sorted(seen) == list(range(48))
