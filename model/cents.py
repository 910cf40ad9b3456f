"""How a network's row CENTS says how far the sound is from each pitch. It needs no torch."""

import numpy as np
from numpy.typing import NDArray

RANGE_CENTS = 50.0  # a peak further away is that of another pitch
SCALE_CENTS = 4 * RANGE_CENTS  # a row is 0.5 + cents / SCALE_CENTS, or 0 where there is no sound


def cents(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cents from -RANGE_CENTS to RANGE_CENTS; NaN where there is no sound."""
    return np.where(row > 0, (row - np.float32(0.5)) * np.float32(SCALE_CENTS), np.float32(np.nan))
