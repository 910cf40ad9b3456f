"""Linear-phase low-pass filters: a sinc under a Kaiser window.

``scipy.signal.firwin`` returns the same filters, but importing SciPy takes half a second.
"""

import math

import numpy as np
from numpy.typing import NDArray


def kaiser(rejection_db: float, transition: float) -> tuple[int, float]:
    """Return a filter's number of taps and its window's beta (J. F. Kaiser, 1974).

    Args:
        rejection_db: rejection of the stop band, above 50 dB.
        transition: width of the transition band as a fraction of half the sample rate.
    """
    taps = (rejection_db - 7.95) / (2.285 * math.pi * transition) + 1
    return math.ceil(taps), 0.1102 * (rejection_db - 8.7)


def low_pass(taps: int, edge: float, beta: float) -> NDArray[np.float64]:
    """Return a filter, shape [taps], with a gain of 1 at 0 Hz and 1/2 at ``edge``, which
    is a fraction of half the sample rate."""
    time = np.arange(taps) - (taps - 1) / 2
    response = np.sinc(edge * time) * np.kaiser(taps, beta)
    return np.asarray(response / response.sum())
