"""Segments of recordings for tests of workers."""

import numpy as np

from model.config import HOP, WINDOW
from service.stream.windows import PendingWindows


def segment(windows: int, seed: int = 0) -> PendingWindows:
    """Return a segment of noise with blocks of 8 frames."""
    samples = WINDOW + (windows - 1) * 8 * HOP
    noise = np.random.default_rng(seed).normal(0, 0.2, samples).astype(np.float32)
    return PendingWindows(noise, windows, 8, slice(48, 56))
