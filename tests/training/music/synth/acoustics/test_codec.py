"""Narrow channels keep what they let through in its place."""

import numpy as np
import pytest

from model.config import SAMPLE_RATE
from training.music.synth.acoustics.augment import mp3


def noise(samples: int = 20_000) -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_normal(samples)).astype(np.float32)


def delay(before: np.ndarray, after: np.ndarray) -> int:
    size = 2 * len(before)
    spectra = np.conj(np.fft.rfft(before, size)) * np.fft.rfft(after, size)
    peak = int(np.fft.irfft(spectra).argmax())
    return peak if peak < len(before) else peak - size


@pytest.mark.parametrize("compression", [0.0, 0.9])
@pytest.mark.parametrize("samples", [9_999, 600])
def test_mp3_is_aligned_to_the_sample(compression: float, samples: int) -> None:
    before = noise(samples)
    after = mp3(before, SAMPLE_RATE, compression)
    assert after.shape == before.shape
    assert after.dtype == np.float32
    assert delay(before, after) == 0
    assert 0.6 < np.corrcoef(before, after)[0, 1] < 0.99  # it has lost something
