"""The weights in the package."""

import numpy as np
import pytest
import torch

from model.config import FRAMES, HOP, SAMPLE_RATE, WINDOW
from model.storage import WEIGHTS, load, shipped

SHIPPED = ("live", "light", "accurate")
LIMIT_MIB = 16
ATTACK_S = 0.004
HEARD = 0.2  # minimum onset probability, which notes of music reach too
FRAME = FRAMES - 17  # 200 ms behind the newest


def note(pitch: int, begins: int) -> np.ndarray:
    """Return a decaying note of a few partials that begins at a sample of the window."""
    time = np.arange(WINDOW - begins) / SAMPLE_RATE
    frequency = 440 * 2 ** ((pitch - 69) / 12)
    sound = sum(
        np.sin(2 * np.pi * k * frequency * time) * np.exp(-time * (1 + k)) / k**1.5
        for k in range(1, 9)
        if k * frequency < 0.45 * SAMPLE_RATE
    )
    window = np.zeros(WINDOW, np.float32)
    window[begins:] = 0.2 * sound * np.minimum(1, time / ATTACK_S)
    return window


def test_the_package_has_the_named_weights_and_they_are_small() -> None:
    assert set(shipped()) == set(SHIPPED)
    size = sum(path.stat().st_size for path in WEIGHTS.glob("*.safetensors"))
    assert size < LIMIT_MIB * 2**20


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("pitch", [45, 57, 69, 80])
def test_they_hear_a_note(name: str, pitch: int) -> None:
    transcriber = load(name, dtype=torch.float32)
    assert transcriber.config.name == name
    begins = HOP * (FRAME + 1 - 8)
    window = torch.from_numpy(np.stack([note(pitch, begins), note(pitch, WINDOW)]))
    heard, silent = transcriber.predict(window)
    assert heard[0, FRAME].argmax() == pitch
    assert heard[0, FRAME, pitch] > 0.5
    onset = heard[1, FRAME - 11 : FRAME - 4, pitch]
    assert onset.max() > HEARD
    assert silent[0].max() < 0.1
    assert silent[1].max() < 0.1
