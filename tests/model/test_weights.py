"""Tests of the weights in the package."""

import numpy as np
import pytest
import torch

from model.config import FRAMES, HOP, SAMPLE_RATE, WINDOW
from model.storage import WEIGHTS, load, shipped
from tests.fakes import tone_hz

SHIPPED = ("live", "light", "accurate")
PITCHES = (45, 57, 69, 80)
MAX_MIB = 16
ATTACK_S = 0.004
FRAME = FRAMES - 17  # 200 ms behind the newest


def note(pitch: int, onset: int) -> np.ndarray:
    """Return a window with a decaying note of up to 8 partials; ``onset`` is in samples."""
    time_s = np.arange(WINDOW - onset) / SAMPLE_RATE
    sound = sum(
        np.sin(2 * np.pi * k * tone_hz(pitch) * time_s) * np.exp(-time_s * (1 + k)) / k**1.5
        for k in range(1, 9)
        if k * tone_hz(pitch) < 0.45 * SAMPLE_RATE
    )
    window = np.zeros(WINDOW, np.float32)
    window[onset:] = 0.2 * sound * np.minimum(1, time_s / ATTACK_S)
    return window


def test_the_package_contains_the_shipped_weights() -> None:
    assert set(shipped()) == set(SHIPPED)
    size = sum(path.stat().st_size for path in WEIGHTS.glob("*.safetensors"))
    assert size < MAX_MIB * 2**20


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_detect_notes(name: str) -> None:
    transcriber = load(name, dtype=torch.float32)
    assert transcriber.config.name == name
    onset = HOP * (FRAME + 1 - 8)
    windows = np.stack([*(note(pitch, onset) for pitch in PITCHES), note(PITCHES[0], WINDOW)])
    *notes, silent = transcriber.predict(torch.from_numpy(windows))
    for pitch, sounding in zip(PITCHES, notes, strict=True):
        assert sounding[0, FRAME].argmax() == pitch
        assert sounding[0, FRAME, pitch] > 0.5
        assert sounding[1, FRAME - 11 : FRAME - 4, pitch].max() > 0.2
    assert silent[:2].max() < 0.1
