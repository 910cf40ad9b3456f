"""Sounds and notes that the tests of pianos share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from training.music.synth.pianos.pedal import contact_time, pedal_depth
from training.music.synth.scores import Notes


def press(*rows: tuple[float, float, float]) -> NDArray[np.float64]:
    return np.array(rows, float).reshape(-1, 3)


def contact_s(pedal: NDArray[np.float64], seconds: float) -> NDArray[np.float32]:
    depth = pedal_depth(pedal, int(seconds * SAMPLE_RATE), SAMPLE_RATE)
    return contact_time(depth, SAMPLE_RATE)


def tone(pitch: float, seconds: float) -> NDArray[np.float32]:
    time = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return np.sin(2 * np.pi * 440 * 2 ** ((pitch - 69) / 12) * time).astype(np.float32)


def level_db(audio: NDArray[np.float32]) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(audio**2)) + 1e-12))


def around(audio: NDArray[np.float32], second: float) -> float:
    """Level of 40 ms."""
    middle = int(second * SAMPLE_RATE)
    return level_db(audio[middle - 220 : middle + 220])


def held(pitch: int, onset: float, released: float) -> Notes:
    """One note with its key."""
    return Notes(
        np.array([onset]),
        np.array([released]),
        np.array([pitch], np.int16),
        np.array([90], np.float32),
        np.zeros(1, np.int16),
    )
