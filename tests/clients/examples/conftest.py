"""A recording whose notes are known."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

RATE_HZ = 44_100
# (pitch, onset in s) of tones that fade out within a second
TUNE = [(60, 0.5), (64, 1.0), (67, 1.5), (72, 2.0), (55, 2.5)]
DURATION_S = 4.0
LEVELS = (1.0, 0.5, 0.35, 0.25, 0.15, 0.1)  # of partials


@pytest.fixture(scope="package")
def tune(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Struck strings, more or less."""
    time = np.arange(round(DURATION_S * RATE_HZ)) / RATE_HZ
    samples = np.zeros_like(time)
    for pitch, onset in TUNE:
        since = np.maximum(0, time - onset)
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        for number, level in enumerate(LEVELS, 1):
            partial = np.sin(2 * np.pi * number * frequency * since)
            samples += 0.2 * level * np.exp(-3 * (1 + number / 2) * since) * partial
    path = tmp_path_factory.mktemp("tune") / "tune.wav"
    soundfile.write(path, samples, RATE_HZ, subtype="PCM_16")
    return path
