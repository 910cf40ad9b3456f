"""Endless shuffled epochs over training examples."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def shuffled_rows(size: int, batch_size: int, step: int, *seed: int) -> NDArray[np.int64]:
    """The examples, of ``size``, in the batch at a step counted from 0: (batch_size,)."""
    places = range(step * batch_size, (step + 1) * batch_size)
    return np.array([_order(size, *seed, place // size)[place % size] for place in places])


@lru_cache(16)
def _order(size: int, *seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(size)
