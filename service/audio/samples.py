"""Samples in memory as the source of an ``AudioDecoder``."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK_SAMPLES = 1 << 14  # per channel


class SampleArray:
    """Samples with the interface of ``service.audio.container.Container``.

    Attributes:
        rate_hz: sample rate.
        header_duration_s: length in seconds.
        corruption: None: nothing is missing.
        title: "".
    """

    may_exceed_full_scale = True
    corruption: str | None = None
    title = ""

    def __init__(self, samples: NDArray[np.float32], rate_hz: int) -> None:
        """samples: shape [n] or [n, channels], full scale 1."""
        self._samples = samples[:, None] if samples.ndim == 1 else samples
        self.rate_hz = rate_hz
        self.header_duration_s = len(samples) / rate_hz

    def frames(self) -> Iterator[tuple[NDArray[np.float32], int]]:
        """Yield blocks, shape [n, channels], and their rate."""
        for first in range(0, len(self._samples), BLOCK_SAMPLES):
            yield self._samples[first : first + BLOCK_SAMPLES], self.rate_hz

    def close(self) -> None:
        """Do nothing: there is no file."""
