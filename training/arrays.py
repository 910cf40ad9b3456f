"""Short names for the types of arrays and of the random generator, and a weighted draw."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rng = np.random.Generator
T = TypeVar("T")


def draw(items: Sequence[T], weights: ArrayLike, rng: Rng) -> T:
    """Draw one of n items with a probability proportional to its weight, [n]."""
    shares = np.asarray(weights, float)
    return items[int(rng.choice(len(items), p=shares / shares.sum()))]
