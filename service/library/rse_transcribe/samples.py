"""Arrays of samples as callers have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_float(samples: NDArray[Any]) -> NDArray[np.float32]:
    """[n] or [n, channels], floats or signed integers, to float32 of full scale 1.

    Raises ValueError for other shapes and types.
    """
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and len(samples) < samples.shape[1]):
        raise ValueError(f"samples have the shape [n] or [n, channels], not {list(samples.shape)}")
    match samples.dtype.kind:
        case "f":
            return samples.astype(np.float32, copy=False)
        case "i":
            return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
        case _:
            raise ValueError(f"samples are floats or signed integers, not {samples.dtype}")
